#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/status.h"

namespace collops {

namespace control {
class Control;
}

// ATB's CommMode: whether the ranks are processes, or threads of one process.
enum CommMode : int {
  COMM_UNDEFINED = -1,
  COMM_MULTI_PROCESS = 0,
  COMM_MULTI_THREAD = 1,
};

// What a communicator is asked to be.
struct CommunicatorSpec {
  std::string backend;
  std::string comm_domain;
  int rank = 0;
  int rank_size = 0;
  CommMode comm_mode = COMM_MULTI_PROCESS;
  double timeout_s = 300.0;
  // Asked during first contact, which an error ends: whether the ranks to come can come at all.
  std::function<Status()> watch = {};
  // Of a part that lives no longer than the group it was split from: a failure in one of the two
  // ends the other.
  std::weak_ptr<control::Control> family = {};
};

}  // namespace collops

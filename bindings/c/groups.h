#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "c/collops_c.h"
#include "collops/comm/communicator.h"
#include "collops/operators/plain/plain_calls.h"

namespace collops::c {

// A communicator as programs without Python use it: those in C, and those that XLA compiles.
struct Group {
  explicit Group(const std::shared_ptr<Communicator>& of)
      : communicator(of), calls({std::shared_ptr<void>(), of.get()}) {}

  const std::weak_ptr<Communicator> communicator;
  std::shared_ptr<Communicator> owner;  // of one that C has made, until it closes it
  PlainCalls calls;                     // which own no communicator
};

// A call's hold on them.
struct InUse {
  std::shared_ptr<Group> group;
  std::shared_ptr<Communicator> communicator;
};

// All of this process, by handle. Thread-safe. Never destroyed: other threads may make calls while
// the process ends.
class Groups {
 public:
  static Groups& Instance();

  // Also one that Python has made. `method` names the call in messages.
  Status Find(const char* method, const collops_comm* handle, InUse* use);
  // Holds a communicator that C has made.
  collops_comm* Keep(const std::shared_ptr<Communicator>& made);
  void Drop(const collops_comm* handle);

 private:
  std::shared_ptr<Group> Add(const std::shared_ptr<Communicator>& communicator);

  std::mutex mutex_;
  std::unordered_map<const collops_comm*, std::shared_ptr<Group>> groups_;
};

}  // namespace collops::c

#pragma once

#include <string>

#include "collops/comm/communicator_spec.h"

namespace collops::control {

// Says, while it lives, that a group of this process has not met: its first contact is not
// complete. Ranks whose first calls are in different groups wait for each other until the time-out,
// whose message then names both groups. Owned by Control. Thread-safe; waits for no one.
class Unmet {
 public:
  explicit Unmet(const CommunicatorSpec& spec);
  ~Unmet();
  Unmet(const Unmet&) = delete;
  Unmet& operator=(const Unmet&) = delete;

  // The end of a message: which other groups of this rank have not met. Empty if all have.
  std::string Others() const;

 private:
  const int rank_;
  const std::string comm_domain_;
};

}  // namespace collops::control

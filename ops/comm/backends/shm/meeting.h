#pragma once

#include <memory>
#include <string>

#include "comm/backends/shm/group.h"
#include "comm/communicator.h"
#include "comm/job.h"
#include "core/deadline.h"
#include "core/status.h"

namespace collops::shm {

// First contact of the ranks of one host. Rank 0 listens on an abstract socket whose name is the
// hash of user, job and comm_domain; the others connect, say who they are and hand over their
// mailbox; rank 0 then hands everyone's to everyone, with the common segment. Begin() never waits;
// Complete() waits for all ranks until the deadline, and names the missing ones. Not thread-safe.
class Meeting {
 public:
  static std::unique_ptr<Meeting> Create(const CommunicatorSpec& spec, const JobIdentity& job);

  virtual ~Meeting() = default;

  virtual void Begin() = 0;
  virtual Status Complete(const Deadline& deadline, Group* group) = 0;
  // Ends it early; whoever waits for this rank gets `reason`.
  virtual void Cancel(const Status& reason) = 0;
};

}  // namespace collops::shm

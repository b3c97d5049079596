#pragma once

#include "comm/backends/hccl/acl_runtime.h"
#include "comm/backends/hccl/api.h"
#include "comm/call.h"
#include "comm/in_flight.h"
#include "core/status.h"

namespace collops::hccl {

// One HcclComm, its own or the caller's, and what its calls need as long as they are on their
// streams. One thread at a time, on the communicator's NPU. Only Initialise and Release wait.
class Engine {
 public:
  explicit Engine(const Api& api) : api_(api), runtime_(api), in_flight_(&runtime_) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Api& api() const { return api_; }
  Comm comm() const { return comm_; }

  // Makes a communicator together with the other ranks; HCCL_CONNECT_TIMEOUT limits the wait.
  Status Initialise(int rank, int rank_size, const RootInfo& root_info);
  // Uses a communicator of the caller's, which is never destroyed here.
  void Adopt(Comm comm) { comm_ = comm; }

  // Ok, or what an earlier call has run into since.
  Status CheckHealth() const;

  // Holds `kept` as long as `stream` has what a call has put on it by now; also of a call that
  // failed half way. Lets go of what other calls needed that are past.
  Status Keep(Stream stream, Kept kept);

  // Whether all calls have ended, or nobody can tell any more.
  bool IsIdle(int device);

  // Lets go of the communicator, from any thread. One of our own is destroyed, on its NPU, once all
  // its calls are known to have ended; else it stays, and nothing is destroyed under them.
  void Release(int device);

 private:
  const Api& api_;
  AclRuntime runtime_;
  InFlight in_flight_;
  Comm comm_ = nullptr;
  bool owned_ = false;
};

}  // namespace collops::hccl

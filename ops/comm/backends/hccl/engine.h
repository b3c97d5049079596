#pragma once

#include "comm/backends/hccl/acl_runtime.h"
#include "comm/backends/hccl/api.h"
#include "comm/call.h"
#include "comm/in_flight.h"
#include "core/status.h"

namespace collops::hccl {

// One HcclComm, created here or the caller's, and what its calls on streams keep alive. One thread
// at a time, on the communicator's NPU. Only Initialise and Release wait.
class Engine {
 public:
  explicit Engine(const Api& api) : api_(api), runtime_(api), in_flight_(&runtime_) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Api& api() const { return api_; }
  Comm comm() const { return comm_; }

  // Creates an HcclComm together with the other ranks; HCCL_CONNECT_TIMEOUT limits the wait.
  Status Initialise(int rank, int rank_size, const RootInfo& root_info);
  // Uses an HcclComm of the caller's, which is never destroyed here.
  void Adopt(Comm comm) { comm_ = comm; }

  // Ok, or an error of an earlier call.
  Status CheckHealth() const;

  // Keeps `kept` alive until the work that is on `stream` now is done; also after a call that
  // failed half way. Releases what finished calls needed.
  Status Keep(Stream stream, KeepAlive kept);

  // Whether all calls have ended, or their state cannot be asked any more.
  bool IsIdle(int device);

  // From any thread. Destroys an HcclComm that was created here, on its NPU, if all its calls are
  // known to have ended; otherwise it is never destroyed.
  void Release(int device);

 private:
  const Api& api_;
  AclRuntime runtime_;
  InFlight in_flight_;
  Comm comm_ = nullptr;
  bool owned_ = false;
};

}  // namespace collops::hccl

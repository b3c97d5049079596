#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/backends/hccl/comm_handle.h"
#include "comm/backends/hccl/library/abilities.h"
#include "comm/backends/hccl/library/acl_runtime.h"
#include "comm/backends/hccl/library/api.h"
#include "comm/call.h"
#include "comm/in_flight.h"
#include "core/status.h"

namespace collops::hccl {

// One rank's HcclComm, what this library and SoC can do, and what its calls on streams keep alive.
// One thread at a time, on the communicator's NPU. Only Release waits.
class Engine {
 public:
  Engine(const Api& api, int rank, int size)
      : api_(api), rank_(rank), size_(size), runtime_(api), in_flight_(&runtime_) {}
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const Api& api() const { return api_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool connected() const { return handle_ != nullptr; }
  Comm comm() const { return handle_->comm(); }
  const std::shared_ptr<CommHandle>& handle() const { return handle_; }
  const Abilities& abilities() const { return abilities_; }
  DeviceRuntime& runtime() { return runtime_; }

  // A little device memory that no call reads or writes, where HCCL takes no null.
  void* stand_in() const { return stand_in_; }

  // The engine's first calls may be made.
  Status Connect(std::shared_ptr<CommHandle> handle, Abilities abilities);

  // Ok, or an error of an earlier call, with the calls that may be meant.
  Status CheckHealth();

  // Keeps `kept` alive until the work that is on `stream` now is done; also after a call that
  // failed half way. `name` and `number` are the call's. Releases what finished calls needed.
  Status Keep(Stream stream, KeepAlive kept, const char* name, uint64_t number);

  // Whether all calls have ended, or their state cannot be asked any more.
  bool IsIdle(int device);

  // From any thread. Lets go of the HcclComm, which is never destroyed unless all calls here are
  // known to have ended, which is returned.
  bool Release(int device);

 private:
  const Api& api_;
  const int rank_;
  const int size_;
  AclRuntime runtime_;
  InFlight in_flight_;
  std::shared_ptr<CommHandle> handle_;
  Abilities abilities_;
  void* stand_in_ = nullptr;
};

}  // namespace collops::hccl

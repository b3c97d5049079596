#pragma once

#include <functional>
#include <memory>
#include <string>

#include "collops/comm/backends/hccl/comm_handle.h"
#include "collops/comm/backends/hccl/library/abilities.h"
#include "collops/comm/backends/hccl/library/acl_runtime.h"
#include "collops/comm/backends/hccl/library/api.h"
#include "collops/comm/call.h"
#include "collops/comm/streams/stream_engine.h"
#include "collops/core/status.h"

namespace collops::hccl {

// One rank's HcclComm, and what this library and SoC can do. Threads as in StreamEngine.
class Engine : public StreamEngine {
 public:
  // `caller_comm`: the caller's HcclComm; null: connected in first contact.
  Engine(const Api& api, int rank, int size, Comm caller_comm);

  const Api& api() const { return api_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  Comm comm() const { return handle_->comm(); }
  const std::shared_ptr<CommHandle>& handle() const { return handle_; }
  const Abilities& abilities() const { return abilities_; }
  kernels::DeviceRuntime& runtime() { return runtime_; }

  // A little device memory that no call reads or writes, where HCCL takes no null.
  void* stand_in() const { return stand_in_; }

  // The engine's first calls may be made.
  Status Connect(std::shared_ptr<CommHandle> handle, Abilities abilities);

  bool connected() const override { return handle_ != nullptr; }
  Status FindDevice(int* device) const override;
  Status OnDevice(int device, const std::function<void()>& step) const override;
  Status Meet(control::Control* control, bool compares, int device) override;
  Status AsyncError() override;

 protected:
  double Patience() const override;
  // An HcclComm is never destroyed unless all calls here are known to have ended.
  void LetGo(bool past) override;

 private:
  const Api& api_;
  const int rank_;
  const int size_;
  AclRuntime runtime_;
  std::shared_ptr<CommHandle> caller_comm_;
  std::shared_ptr<CommHandle> handle_;
  Abilities abilities_;
  void* stand_in_ = nullptr;
};

}  // namespace collops::hccl

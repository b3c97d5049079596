#pragma once

#include <atomic>
#include <memory>

#include "collops/comm/backends/hccl/compute/aclnn.h"
#include "collops/comm/backends/hccl/library/api.h"
#include "collops/kernels/stream_compute.h"

namespace collops::hccl {

// Products and sums of an NPU, by aclnn. Owned by the communicator of that NPU, which every call
// makes the thread's current device.
class AclCompute : public kernels::StreamCompute {
 public:
  // `device` changes once, from -1 to the NPU's number.
  AclCompute(const Api& api, const std::atomic<int>& device) : api_(api), device_(device) {}
  AclCompute(const AclCompute&) = delete;
  AclCompute& operator=(const AclCompute&) = delete;

  Status Available() override;
  int64_t alignment() const override { return kAlignment; }
  Status ScratchBytes(const kernels::StreamStep& step, int64_t* bytes) override;
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, void* stream) override;
  Status SetZero(void* data, int64_t bytes, void* stream) override;
  Status Copy(void* to, const void* from, int64_t bytes, void* stream) override;
  Status SideStream(void** stream) override;
  std::shared_ptr<kernels::StreamMarks> NewMarks() override;

  // Destroys the side stream and gives memory back. The calls are past.
  void Release();

 private:
  // What aclnn's workspaces and its operators' tensors are aligned to.
  static constexpr int64_t kAlignment = 512;

  class Prepared;

  const Api& api_;
  const std::atomic<int>& device_;
  const Aclnn* aclnn_ = nullptr;
  void* stand_in_ = nullptr;  // whose address is passed for any matrix where sizes are asked for
  Stream side_ = nullptr;     // never destroyed if its work may not be past
};

}  // namespace collops::hccl

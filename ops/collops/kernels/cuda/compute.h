#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "collops/core/status.h"
#include "collops/kernels/cuda/blaslt.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/stream_compute.h"

namespace collops::cuda {

// Products of a GPU by cuBLASLt, and the other steps by kernels of ours. Owned by the communicator
// of that GPU.
class CudaCompute : public kernels::StreamCompute {
 public:
  using StreamCheck = std::function<Status(void* stream)>;

  // `device` changes once, from -1 to the GPU's number. `check` is CheckStream().
  CudaCompute(const DriverApi& api, const std::atomic<int>& device, StreamCheck check = nullptr)
      : api_(api), device_(device), check_(std::move(check)), kernels_(api), matmul_(api, device) {}
  CudaCompute(const CudaCompute&) = delete;
  CudaCompute& operator=(const CudaCompute&) = delete;

  Status Available() override;
  Status OnDevice(const std::function<Status()>& work) override;
  bool has_int8() const override { return true; }
  int64_t alignment() const override { return kAlignment; }
  Status ScratchBytes(const kernels::StreamStep& step, int64_t* bytes) override;
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, void* stream) override;
  Status Prepare(const kernels::StreamStep& step, void* scratch, int64_t bytes,
                 void* stream) override;
  Status SetZero(void* data, int64_t bytes, void* stream) override;
  Status Copy(void* to, const void* from, int64_t bytes, void* stream) override;
  Status SideStream(void** stream) override;
  // Whether the stream is one of those of this process: what runs there runs beside products.
  // Thread-safe.
  static bool IsSideStream(Stream stream);
  Status CheckStream(void* stream) const override { return check_ ? check_(stream) : Ok(); }
  std::shared_ptr<kernels::StreamMarks> NewMarks() override;

  // Destroys the side stream and lets go of cuBLASLt's handle. The calls are past.
  void Release() override;

 private:
  // What cuBLASLt wants of its workspace, and whole lines of the L2.
  static constexpr int64_t kAlignment = 256;

  // A product of int8 whose sizes cuBLASLt does not have: of copies in scratch memory, with zeros
  // behind k, and behind the columns.
  struct Padded;
  static Padded Pad(const kernels::StreamStep& step, void* scratch);
  Status RunPadded(const kernels::StreamStep& step, void* scratch, void* stream, bool prepares);
  // A product in leaves, by a kernel of ours.
  Status MultiplyLeaves(const kernels::StreamStep& step, void* scratch, void* stream);
  Status Launch(const kernels::StreamStep& step, void* stream);

  const DriverApi& api_;
  const std::atomic<int>& device_;
  const StreamCheck check_;
  Kernels kernels_;
  bool kernels_loaded_ = false;
  Matmul matmul_;
  Stream side_ = nullptr;  // never destroyed if its work may not be past
};

}  // namespace collops::cuda

#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "collops/core/status.h"
#include "collops/kernels/cuda/compute/blaslt.h"
#include "collops/kernels/stream_compute.h"

namespace collops::cuda {

// Products of one device by cuBLASLt, c = a * b of StreamStep, added up in float32. The algorithm
// of each shape is chosen once. One thread at a time, with that device as the thread's current one;
// waits for no one.
class Matmul {
 public:
  // `device` changes once, from -1 to the GPU's number.
  explicit Matmul(const std::atomic<int>& device) : device_(device) {}
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Scratch memory of any product.
  static constexpr int64_t kScratchBytes = int64_t{32} << 20;

  Status Available() { return LoadBlas(&api_); }
  // Ok, or ERROR_UNSUPPORTED if cuBLASLt has no such product.
  Status Check(const kernels::StreamStep& step);
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, Stream stream);
  // Lets go of the handle, which the device's next user gets: its products are past. To destroy it
  // would wait for the device, and so for a kernel that may wait for this rank's next call.
  void Release();

 private:
  struct Shape {
    kernels::DeviceMatrix a, b, c;  // without their addresses
    uint32_t alignments[3];         // of the addresses and rows of b, a and c, in bytes
    bool operator==(const Shape& other) const;
  };
  struct Choice {
    Shape shape;
    MatmulChoice choice;
  };
  class Objects;

  static Shape ShapeOf(const kernels::StreamStep& step, bool has_addresses);
  Status Choose(const Shape& shape, const Objects& objects, const MatmulAlgorithm** algorithm);
  Status Open();

  const std::atomic<int>& device_;
  const BlasApi* api_ = nullptr;
  BlasHandle handle_ = nullptr;
  std::vector<Choice> choices_;
};

}  // namespace collops::cuda

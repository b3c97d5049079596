#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "collops/core/status.h"
#include "collops/kernels/cuda/compute/blaslt.h"
#include "collops/kernels/cuda/driver/api.h"
#include "collops/kernels/stream_compute.h"

namespace collops::cuda {

// Products of one device by cuBLASLt, c = a * b of StreamStep, added up in float32. The algorithm
// of each shape is chosen once. One thread at a time, with that device as the thread's current one.
// cuBLASLt loads an algorithm's kernel when it is first used, and may then wait until the device is
// idle; beside collectives that waits for a moment between them. Nothing else here waits.
class Matmul {
 public:
  // `device` changes once, from -1 to the GPU's number.
  Matmul(const DriverApi& driver, const std::atomic<int>& device)
      : driver_(driver), device_(device) {}
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Scratch memory of any product.
  static constexpr int64_t kScratchBytes = int64_t{32} << 20;

  Status Available() { return LoadBlas(&api_); }
  // Ok, or ERROR_UNSUPPORTED if cuBLASLt has no such product.
  Status Check(const kernels::StreamStep& step);
  // Beside collectives, if only the algorithm for the least alignment has been used, that one runs.
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, Stream stream);
  // Uses the algorithms for the matrices' alignment and for the least, of which one serves any
  // later product with these shapes.
  Status Prepare(const kernels::StreamStep& step, void* scratch, int64_t bytes, Stream stream);
  // Lets go of the handle, which the device's next user gets: its products are past. To destroy it
  // would wait for the device, and so for a kernel that may wait for this rank's next call.
  void Release();

 private:
  struct Shape {
    kernels::DeviceMatrix a, b, c;  // without their addresses
    kernels::Beside beside;
    bool is_aligned;  // the addresses, as much as the rows are; else to the elements only
    std::vector<int64_t> Numbers() const;  // which tell it from all others
  };
  struct Choice {
    std::vector<int64_t> numbers;  // of the shape
    MatmulChoice choice;
  };
  class Objects;

  static Shape ShapeOf(const kernels::StreamStep& step, bool is_aligned);
  bool IsLoaded(const Shape& shape) const;
  void NoteLoaded(const Shape& shape) const;
  bool MayRunBeside(const MatmulAlgorithm& algorithm) const;
  Status Find(const Shape& shape, const Objects& objects, MatmulChoice* choice) const;
  Status Choose(const Shape& shape, const Objects& objects, const MatmulAlgorithm** algorithm);
  Status RunShape(const Shape& shape, const kernels::StreamStep& step, void* scratch, int64_t bytes,
                  Stream stream);
  Status Open();

  const DriverApi& driver_;
  const std::atomic<int>& device_;
  const BlasApi* api_ = nullptr;
  BlasHandle handle_ = nullptr;
  std::vector<Choice> choices_;
};

}  // namespace collops::cuda

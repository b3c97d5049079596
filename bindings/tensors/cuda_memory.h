#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/kernels/cuda/memory_pool.h"
#include "tensors/dlpack.h"

namespace collops::bindings {

// Says that work on the stream uses the block, when the last of it has been put there: when this is
// destroyed. Needs no GIL.
class CudaUse {
 public:
  CudaUse(std::shared_ptr<cuda::Block> block, cuda::Stream stream)
      : block_(std::move(block)), stream_(stream) {}
  ~CudaUse() {
    if (block_ != nullptr) block_->UsedOn(stream_);
  }
  CudaUse(const CudaUse&) = delete;
  CudaUse& operator=(const CudaUse&) = delete;

 private:
  std::shared_ptr<cuda::Block> block_;
  cuda::Stream stream_;
};

// Elements in row-major order in memory of a GPU that is made here; what collops.CudaArray is. The
// memory goes to a later one when the array and all consumers of it are gone and the streams that
// they named are past. One thread at a time needs the GIL.
class CudaMemory {
 public:
  // `dtype`: numpy's or ml_dtypes' name. `device`: -1 for the one of the thread's current context.
  // `operation` is for messages.
  CudaMemory(std::vector<int64_t> shape, const std::string& dtype, int device,
             const std::string& operation);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  int device() const { return device_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::shared_ptr<cuda::Block>& block() const { return block_; }
  // As the core sees it.
  TensorView View() const;
  // The address; null without elements.
  void* data() const;

  // Copies all bytes, on the stream, and waits for it.
  void Write(const pybind11::array& from, const pybind11::object& stream) const;
  void Read(const pybind11::array& to, const pybind11::object& stream) const;
  // A DLPack capsule for a consumer on that stream; -1: it orders itself.
  pybind11::object Export(const pybind11::object& stream, bool versioned) const;
  // The address, for a use on an unknown stream that follows the legacy default stream.
  uintptr_t Show();

 private:
  template <typename Put>
  void Transfer(const char* operation, const pybind11::object& stream, const Put& put) const;

  std::vector<int64_t> shape_;
  dlpack::Type type_ = {};
  int64_t bytes_ = 0;
  int device_ = 0;
  std::shared_ptr<cuda::Block> block_;  // null without elements
  bool is_shown_ = false;
};

}  // namespace collops::bindings

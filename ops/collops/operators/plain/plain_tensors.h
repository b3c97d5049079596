#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"
#include "collops/operators/framework/collective_terms.h"

namespace collops {

// A tensor of a call of the plain level, as it lies in memory.
struct PlainTensor {
  TensorView view;
  int64_t numel = 0;  // of all dimensions, also when there are more than the view can hold
};

// What such a call reads and writes; one that works in place has x alone.
struct PlainTensors {
  PlainTensor x;
  PlainTensor out;
  std::vector<PlainTensor> others;  // what a product reads besides x: the weight and the residual
  void* stream = nullptr;           // of a device
  void* workspace = nullptr;        // of a device, PlainPlan::DeviceWorkspace() bytes
  PlainTensor rows = {};            // where a grouped product's rows are wanted, if anywhere
};

// The tensor is contiguous, on `device`, in this machine's byte order, and has `count` elements.
// `label` is what the method calls it.
Status CheckWhole(const PlainTensor& tensor, const char* method, const char* label, int64_t count,
                  const Device& device);

Status CheckWritable(const PlainTensor& tensor, const char* method, const char* label);

// What the calls with a result have in common: both tensors are whole, on the device and of one
// dtype, `out` may be written, and they have exactly x_count and out_count elements.
Status CheckPair(const PlainTensors& tensors, const char* method, int64_t x_count,
                 int64_t out_count, const Device& device);

// `out` must not share memory with `x`, except that out may begin exactly `offset` elements after x
// begins (below 0: before it). `exception` says so at the end of the message, where there is one.
Status CheckApart(const PlainTensors& tensors, const char* method, std::optional<int64_t> offset,
                  const char* exception);

// Scratch memory that all calls of this thread share, until one needs more; null where there is not
// so much.
void* PlainScratch(uint64_t bytes);

// Adds what the ranks of the communicator compare of x: its shape, of whose more than eight
// dimensions the last ones count as one, or its number of elements.
void AddSizeOf(const Communicator& communicator, const PlainTensor& x, CollectiveTerms* terms);

// There is such a reduction of such elements, which are reduced as elements of ReducedAs(x.dtype).
Status CheckReducible(const TensorDesc& x, ReduceOp op, const char* method);

}  // namespace collops

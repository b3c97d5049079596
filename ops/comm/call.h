#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/tensor.h"

namespace collops {

// What a call is, as the ranks compare it in their first signal.
enum class CallKind : int32_t {
  kBarrier = 0,
  kAllGatherV = 1,
  kReduceScatterV = 2,
  kSizeExchange = 3,   // an AllGatherV of the plain level that only tells the ranks' sizes
  kSplit = 4,          // an AllGatherV of what each rank asks of Split
  kAllGather = 5,      // an AllGatherV of inputs of one shape
  kReduceScatter = 6,  // a ReduceScatterV in equal parts
  kAllReduce = 7,
  kBroadcast = 8,
  kLinearParallel = 9,
  kRootInfo = 10,  // an AllGatherV by which rank 0 tells where an engine of its own meets
};

// The operator's name for messages.
const char* Name(CallKind kind);

// Whether a call of that kind computes, so that not every pair of dtype and op will do.
bool Reduces(CallKind kind);

// Elements [begin, end).
struct Range {
  int64_t begin;
  int64_t end;
};

// What the plain level says of a call besides. The ranks compare it; it moves nothing.
struct CallLabel {
  int32_t dim = 0;          // the dimension that is cut into blocks
  int32_t num_tensors = 1;  // of the list that is gathered in one call after the other
  char type[24] = {};       // the name of an element type that travels as bytes
};

// One AllGatherV: block r of `output` = x of rank r. The pointers in it stay valid during the call.
struct AllGatherVCall {
  CallKind kind = CallKind::kAllGatherV;
  DType dtype = DType::kUndefined;
  int32_t root = 0;
  const void* x = nullptr;  // recv_counts[rank] elements; may be the own block of `output`
  Shape x_shape;            // compared; left empty where the ranks' shapes may differ
  void* output = nullptr;
  const int64_t* recv_counts = nullptr;  // rank_size, equal on every rank
  const int64_t* rdispls = nullptr;      // rank_size, equal on every rank
  const Range* gaps = nullptr;           // what no block covers: set to zero
  int64_t num_gaps = 0;
  CallLabel label;
  void* stream = nullptr;
};

// One ReduceScatterV: output = reduction, in rank order, of every rank's slice `rank` of x.
struct ReduceScatterVCall {
  CallKind kind = CallKind::kReduceScatterV;
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  const void* x = nullptr;
  Shape x_shape;           // equal on every rank
  void* output = nullptr;  // may be the own slice of `x`, if no other slice shares elements with it
  int64_t output_count = 0;              // elements; those past send_counts[rank] are set to zero
  const int64_t* send_counts = nullptr;  // rank_size, equal on every rank
  const int64_t* sdispls = nullptr;      // rank_size, equal on every rank
  CallLabel label;
  void* stream = nullptr;
};

// One AllReduce: output = reduction, in rank order, of every rank's x.
struct AllReduceCall {
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  int32_t root = 0;
  const void* x = nullptr;
  Shape x_shape;           // equal on every rank
  int64_t count = 0;       // elements of x, equal on every rank
  void* output = nullptr;  // may be x
  CallLabel label;
  void* stream = nullptr;
};

// One Broadcast: data = data of rank `root`.
struct BroadcastCall {
  DType dtype = DType::kUndefined;
  int32_t root = 0;
  void* data = nullptr;
  Shape x_shape;      // equal on every rank
  int64_t count = 0;  // elements of data, equal on every rank
  CallLabel label;
  void* stream = nullptr;
};

}  // namespace collops

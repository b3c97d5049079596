#pragma once

#include <cstdint>
#include <memory>

#include "collops/comm/agreement.h"
#include "collops/core/dtype.h"

namespace [[gnu::visibility("default")]] collops {

// What an operator can ask of a backend. A backend does not know operators.
enum class Primitive {
  kGather,      // AllGatherV
  kReduce,      // ReduceScatterV
  kEvenReduce,  // AllReduce, and ReduceScatterV with parts of one size or one rank's part alone
  kExchange,    // ExchangeV
  kMessages,    // Send and Recv
  kWindows,     // fused calls: computing while peers' memory is read in place
};

// Elements [begin, end).
struct Range {
  int64_t begin;
  int64_t end;
};

// Keeps alive all that a call's pointers point to, except tensors, until the stream is past the
// call; usually a plan. Null: the pointers are valid only until the call returns, and a backend
// whose work runs later copies what it still reads.
using KeepAlive = std::shared_ptr<const void>;

// One AllGatherV: block r of `output` = x of rank r. What a call's pointers point to must not
// change during the call, nor as long as `keep` lives.
struct AllGatherVCall {
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;
  const void* x = nullptr;  // recv_counts[rank] elements; may be this rank's block of `output`
  void* output = nullptr;
  const int64_t* recv_counts = nullptr;  // rank_size, equal on every rank
  const int64_t* rdispls = nullptr;      // rank_size, equal on every rank
  const Range* gaps = nullptr;           // elements that no block covers: set to zero
  int64_t num_gaps = 0;
  void* stream = nullptr;
  KeepAlive keep;
};

// One ReduceScatterV: output = reduction, in rank order, of every rank's slice `rank` of x.
struct ReduceScatterVCall {
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  const void* x = nullptr;
  void* output = nullptr;    // may be this rank's slice of `x`, if no other slice overlaps it
  int64_t output_count = 0;  // elements; those past send_counts[rank] are set to zero
  const int64_t* send_counts = nullptr;  // rank_size, equal on every rank
  const int64_t* sdispls = nullptr;      // rank_size, equal on every rank
  void* scratch = nullptr;               // Communicator::ScratchBytes(); the stream uses it
  void* stream = nullptr;
  KeepAlive keep;
};

// One ExchangeV: block r of `output` = slice `rank` of x of rank r. Slices may overlap, blocks must
// not. A rank that neither sends nor receives takes part, too.
struct ExchangeVCall {
  const Agreement* agreement = nullptr;  // with Pairwise() of the counts, on which backends rely
  DType dtype = DType::kUndefined;
  const void* x = nullptr;
  const int64_t* send_counts = nullptr;  // rank_size: elements for each rank
  const int64_t* sdispls = nullptr;      // rank_size: where they begin in x
  void* output = nullptr;
  const int64_t* recv_counts = nullptr;  // rank_size: elements from each rank
  const int64_t* rdispls = nullptr;      // rank_size: where they begin in `output`
  const Range* gaps = nullptr;           // elements that no block covers: set to zero
  int64_t num_gaps = 0;
  void* stream = nullptr;
  KeepAlive keep;
};

// One AllReduce: output = reduction, in rank order, of every rank's x.
struct AllReduceCall {
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  const void* x = nullptr;
  int64_t count = 0;        // elements of x, equal on every rank
  void* output = nullptr;   // may be x
  void* scratch = nullptr;  // Communicator::ScratchBytes() of this rank's even part
  void* stream = nullptr;
  KeepAlive keep;
};

// One Broadcast: data = data of rank `root`.
struct BroadcastCall {
  const Agreement* agreement = nullptr;
  DType dtype = DType::kUndefined;
  int root = 0;
  void* data = nullptr;
  int64_t count = 0;  // elements of data, equal on every rank
  void* stream = nullptr;
  KeepAlive keep;
};

}  // namespace collops

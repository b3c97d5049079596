#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collops/comm/backends/ucx/reduction/host_slices.h"
#include "collops/comm/backends/ucx/streams.h"

namespace collops::ucx {

// The elements of a call's chunks.
struct ReductionChunks {
  DType dtype = DType::kUndefined;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 0;         // of the group, for the average
  int64_t item = 0;      // bytes of an element
  int64_t sum_item = 0;  // of its accumulator
  int64_t chunk = 0;     // elements of a chunk
};

// Where a task takes the chunks of one source from.
struct TaskInput {
  const std::byte* data = nullptr;     // the whole slice, or
  int rank = -1;                       // the slice of this rank of the host, or
  IncomingChunks* incoming = nullptr;  // what comes over UCX
  const std::byte* ring = nullptr;     // into this ring,
  bool sums = false;                   // as accumulators
};

// One stage of a reduction that this rank makes, chunk by chunk. Lives during one call; one thread;
// waits for no one.
class ReductionTask {
 public:
  // `count`: elements of the owner's slice. `sums`: room for a chunk of accumulators.
  ReductionTask(const ReductionChunks& chunks, StageResult result, int owner, int64_t count,
                float* sums)
      : chunks_(chunks), result_(result), owner_(owner), count_(count), sums_(sums) {}

  void AddInput(const TaskInput& input) { inputs_.push_back(input); }
  // The result goes into `memory`, the whole of it or, with `outgoing`, into a ring.
  void SetOutput(std::byte* memory, OutgoingChunks* outgoing) {
    output_ = memory;
    outgoing_ = outgoing;
  }

  bool done() const { return next_ * chunks_.chunk >= count_; }
  // Whether the next chunk of all sources is there, and room for the result.
  Status Look(const HostSlices& slices, bool* ready);
  // Reduces the next chunk, which Look() has found.
  void Reduce();

 private:
  int64_t ResultItem() const {
    return result_ == StageResult::kSums ? chunks_.sum_item : chunks_.item;
  }
  void ReduceInFloat32(std::byte* to, int64_t count);
  void ReduceElements(std::byte* to, int64_t count);

  const ReductionChunks& chunks_;
  StageResult result_;
  int owner_;
  int64_t count_;
  float* sums_;
  std::vector<TaskInput> inputs_;
  std::vector<const void*> found_;  // the next chunk of each input
  std::byte* output_ = nullptr;
  OutgoingChunks* outgoing_ = nullptr;
  int64_t next_ = 0;
};

}  // namespace collops::ucx

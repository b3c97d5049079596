#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collops/comm/call.h"

namespace collops {

// `count` elements, split as evenly as possible; the first ranks get one more. An AllReduce is a
// ReduceScatterV of these parts, which leaves each in its place of the output, and an AllGatherV.
// The counts live as long as this object, so the calls have no `keep`.
struct EvenSplit {
  EvenSplit(int64_t count, int size) : counts(static_cast<size_t>(size)), displs(counts.size()) {
    int64_t begin = 0;
    for (int r = 0; r < size; ++r) {
      displs[static_cast<size_t>(r)] = begin;
      counts[static_cast<size_t>(r)] = count / size + (r < count % size ? 1 : 0);
      begin += counts[static_cast<size_t>(r)];
    }
  }

  ReduceScatterVCall Reduce(const AllReduceCall& call, int rank) const {
    const auto own = static_cast<size_t>(rank);
    ReduceScatterVCall reduce;
    reduce.agreement = call.agreement;
    reduce.dtype = call.dtype;
    reduce.op = call.op;
    reduce.x = call.x;
    reduce.output = static_cast<std::byte*>(call.output) + displs[own] * SizeOf(call.dtype);
    reduce.output_count = counts[own];
    reduce.send_counts = counts.data();
    reduce.sdispls = displs.data();
    reduce.scratch = call.scratch;
    reduce.stream = call.stream;
    return reduce;
  }

  AllGatherVCall Gather(const AllReduceCall& call, int rank) const {
    AllGatherVCall gather;
    gather.agreement = call.agreement;
    gather.dtype = call.dtype;
    gather.x = static_cast<std::byte*>(call.output) +
               displs[static_cast<size_t>(rank)] * SizeOf(call.dtype);
    gather.output = call.output;
    gather.recv_counts = counts.data();
    gather.rdispls = displs.data();
    gather.stream = call.stream;
    return gather;
  }

  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

// Communicator::ScratchBytes() of an AllReduce of `count` elements, enough for every rank.
template <typename Group>
int64_t AllReduceScratch(const Group& group, DType dtype, ReduceOp op, int64_t count, int ranks) {
  return group.ScratchBytes(dtype, op, (count + ranks - 1) / ranks, ranks);
}

}  // namespace collops

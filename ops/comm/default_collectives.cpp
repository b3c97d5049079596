// Default collectives, made from a backend's AllGatherV and ReduceScatterV. The ranks compare the
// collective's own name and terms. The counts are local to a function, so the calls below have no
// `keep`: a device backend copies what it reads later.

#include <vector>

#include "comm/communicator.h"

namespace collops {
namespace {

// `count` elements, split as evenly as possible; the first ranks get one more.
struct EvenSplit {
  EvenSplit(int64_t count, int size) : counts(static_cast<size_t>(size)), displs(counts.size()) {
    int64_t begin = 0;
    for (int r = 0; r < size; ++r) {
      displs[static_cast<size_t>(r)] = begin;
      counts[static_cast<size_t>(r)] = count / size + (r < count % size ? 1 : 0);
      begin += counts[static_cast<size_t>(r)];
    }
  }

  std::vector<int64_t> counts;
  std::vector<int64_t> displs;
};

}  // namespace

Status Communicator::DoAllReduce(const AllReduceCall& call) {
  const EvenSplit split(call.count, size());
  const int64_t own = split.displs[static_cast<size_t>(rank())];
  ReduceScatterVCall reduce;
  reduce.agreement = call.agreement;
  reduce.dtype = call.dtype;
  reduce.op = call.op;
  reduce.x = call.x;
  reduce.output = static_cast<std::byte*>(call.output) + own * SizeOf(call.dtype);
  reduce.output_count = split.counts[static_cast<size_t>(rank())];
  reduce.send_counts = split.counts.data();
  reduce.sdispls = split.displs.data();
  reduce.stream = call.stream;
  RETURN_IF_ERROR(DoReduceScatterV(reduce));

  AllGatherVCall gather;
  gather.agreement = call.agreement;
  gather.dtype = call.dtype;
  gather.x = reduce.output;
  gather.output = call.output;
  gather.recv_counts = split.counts.data();
  gather.rdispls = split.displs.data();
  gather.stream = call.stream;
  return DoAllGatherV(gather);
}

Status Communicator::DoBroadcast(const BroadcastCall& call) {
  std::vector<int64_t> counts(static_cast<size_t>(size()));
  const std::vector<int64_t> displs(counts.size());
  counts[static_cast<size_t>(call.root)] = call.count;
  AllGatherVCall gather;
  gather.agreement = call.agreement;
  gather.dtype = call.dtype;
  gather.x = call.data;
  gather.output = call.data;
  gather.recv_counts = counts.data();
  gather.rdispls = displs.data();
  gather.stream = call.stream;
  return DoAllGatherV(gather);
}

}  // namespace collops

// Default collectives, made from a backend's AllGatherV and ReduceScatterV. The ranks compare the
// collective's own name and terms. The counts are local to a function, so the calls below have no
// `keep`: a device backend copies what it reads later.

#include <vector>

#include "collops/comm/communicator.h"
#include "collops/comm/even_split.h"

namespace collops {
Status Communicator::DoAllReduce(const AllReduceCall& call) {
  const EvenSplit split(call.count, size());
  COLLOPS_RETURN_IF_ERROR(DoReduceScatterV(split.Reduce(call, rank())));
  return DoAllGatherV(split.Gather(call, rank()));
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

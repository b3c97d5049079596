// The calls: AllGatherV, ExchangeV and the barrier are the kernel collops_move, ReduceScatterV and
// AllReduce the kernel collops_reduce_scatter.
#include <algorithm>

#include "collops/comm/backends/cuda/communicator.h"
#include "collops/comm/even_split.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"

namespace collops::cuda_peers {
namespace {

// The elements of the output that no block covers, which are at most one more than ranks. Returns
// their bytes.
template <typename Call>
int64_t PutGaps(const Call& call, cuda::PeerCall* peer_call) {
  const int64_t size = SizeOf(call.dtype);
  int64_t bytes = 0;
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    const Range& gap = call.gaps[i];
    peer_call->gaps[i] = {gap.begin * size, (gap.end - gap.begin) * size};
    bytes += peer_call->gaps[i].bytes;
  }
  peer_call->num_gaps = static_cast<int32_t>(call.num_gaps);
  return bytes;
}

template <typename Call>
cuda::MoveArgs MoveArgsOf(CudaCommunicator* comm, const Call& call, int64_t* bytes) {
  cuda::MoveArgs args = {comm->BeginCall(*call.agreement)};
  args.call.x = static_cast<const char*>(call.x);
  args.call.output = static_cast<char*>(call.output);
  *bytes = PutGaps(call, &args.call);
  return args;
}

Status LaunchGather(CudaCommunicator* comm, const AllGatherVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  int64_t bytes = 0;
  cuda::MoveArgs args = MoveArgsOf(comm, call, &bytes);
  args.call.same_parts = 1;
  for (int r = 0; r < comm->size(); ++r) {
    args.call.parts[r] = {0, call.recv_counts[comm->rank()] * size, call.rdispls[r] * size,
                          call.recv_counts[r] * size};
    bytes += args.call.parts[r].recv_bytes;
  }
  return comm->Launch(args, bytes, 1.0 / comm->size(), call.stream);
}

Status LaunchReduceScatter(CudaCommunicator* comm, const ReduceScatterVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  const int64_t own_bytes = call.send_counts[comm->rank()] * size;
  cuda::ReduceScatterArgs args = {comm->BeginCall(*call.agreement), call.dtype, call.op};
  args.call.x = static_cast<const char*>(call.x);
  args.call.output = static_cast<char*>(call.output);
  int64_t bytes = own_bytes * comm->size();
  int64_t all_bytes = 0;
  for (int r = 0; r < comm->size(); ++r) {
    all_bytes += call.send_counts[r] * size;
    args.call.parts[r] = {call.sdispls[r] * size, call.send_counts[r] * size, 0, own_bytes};
    bytes = std::max(bytes, args.call.parts[r].send_bytes * comm->size());
  }
  args.call.num_gaps = 1;
  args.call.gaps[0] = {own_bytes, call.output_count * size - own_bytes};
  const double part =
      all_bytes == 0 ? 1 : static_cast<double>(own_bytes) / static_cast<double>(all_bytes);
  return comm->Launch(args, bytes, part, call.stream);
}

}  // namespace

Status CudaCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return LaunchGather(this, call); });
}

Status CudaCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&](KeepAlive*) { return LaunchReduceScatter(this, call); });
}

Status CudaCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, [&](KeepAlive*) {
    const int64_t element = SizeOf(call.dtype);
    int64_t bytes = 0;
    cuda::MoveArgs args = MoveArgsOf(this, call, &bytes);
    for (int r = 0; r < size(); ++r) {
      args.call.parts[r] = {call.sdispls[r] * element, call.send_counts[r] * element,
                            call.rdispls[r] * element, call.recv_counts[r] * element};
      bytes += std::max(args.call.parts[r].send_bytes, args.call.parts[r].recv_bytes);
    }
    return Launch(args, bytes, 1.0 / size(), call.stream);
  });
}

Status CudaCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, [&](KeepAlive*) -> Status {
    const int64_t bytes = call.count * SizeOf(call.dtype);
    if (cuda::IsInline(bytes)) {
      cuda::ReduceScatterArgs args = {BeginCall(*call.agreement), call.dtype, call.op};
      args.call.x = static_cast<const char*>(call.x);
      args.call.output = static_cast<char*>(call.output);
      args.call.same_parts = 1;
      std::fill_n(args.call.parts, size(), cuda::Part{0, bytes, 0, bytes});
      return Launch(args, bytes, 1.0 / size(), call.stream);
    }
    const EvenSplit split(call.count, size());
    COLLOPS_RETURN_IF_ERROR(LaunchReduceScatter(this, split.Reduce(call, rank())));
    return LaunchGather(this, split.Gather(call, rank()));
  });
}

Status CudaCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  return EnqueueBarrier(agreement, stream, [&] {
    return Launch(cuda::MoveArgs{BeginCall(agreement)}, 0, 1.0, stream);
  });
}

}  // namespace collops::cuda_peers

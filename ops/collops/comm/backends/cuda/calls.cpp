// The calls: AllGatherV, ExchangeV and the barrier are the kernel collops_move, ReduceScatterV and
// AllReduce the kernel collops_reduce_scatter.
#include <algorithm>

#include "collops/comm/backends/cuda/engine.h"
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
cuda::MoveArgs Begin(Engine* engine, const Call& call, int64_t* bytes) {
  cuda::MoveArgs args = {engine->BeginCall(*call.agreement)};
  args.call.x = static_cast<const char*>(call.x);
  args.call.output = static_cast<char*>(call.output);
  *bytes = PutGaps(call, &args.call);
  return args;
}

}  // namespace

Status AllGatherV(Engine* engine, const AllGatherVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  int64_t bytes = 0;
  cuda::MoveArgs args = Begin(engine, call, &bytes);
  args.call.same_parts = 1;
  for (int r = 0; r < engine->size(); ++r) {
    args.call.parts[r] = {0, call.recv_counts[engine->rank()] * size, call.rdispls[r] * size,
                          call.recv_counts[r] * size};
    bytes += args.call.parts[r].recv_bytes;
  }
  return engine->Launch(args, bytes, 1.0 / engine->size(), call.stream);
}

Status ExchangeV(Engine* engine, const ExchangeVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  int64_t bytes = 0;
  cuda::MoveArgs args = Begin(engine, call, &bytes);
  for (int r = 0; r < engine->size(); ++r) {
    args.call.parts[r] = {call.sdispls[r] * size, call.send_counts[r] * size,
                          call.rdispls[r] * size, call.recv_counts[r] * size};
    bytes += std::max(args.call.parts[r].send_bytes, args.call.parts[r].recv_bytes);
  }
  return engine->Launch(args, bytes, 1.0 / engine->size(), call.stream);
}

Status Barrier(Engine* engine, const Agreement& agreement, cuda::Stream stream) {
  return engine->Launch(cuda::MoveArgs{engine->BeginCall(agreement)}, 0, 1.0, stream);
}

Status ReduceScatterV(Engine* engine, const ReduceScatterVCall& call) {
  const int64_t size = SizeOf(call.dtype);
  const int64_t own_bytes = call.send_counts[engine->rank()] * size;
  cuda::ReduceScatterArgs args = {engine->BeginCall(*call.agreement), call.dtype, call.op};
  args.call.x = static_cast<const char*>(call.x);
  args.call.output = static_cast<char*>(call.output);
  int64_t bytes = own_bytes * engine->size();
  int64_t all_bytes = 0;
  for (int r = 0; r < engine->size(); ++r) {
    all_bytes += call.send_counts[r] * size;
    args.call.parts[r] = {call.sdispls[r] * size, call.send_counts[r] * size, 0, own_bytes};
    bytes = std::max(bytes, args.call.parts[r].send_bytes * engine->size());
  }
  args.call.num_gaps = 1;
  args.call.gaps[0] = {own_bytes, call.output_count * size - own_bytes};
  const double part =
      all_bytes == 0 ? 1 : static_cast<double>(own_bytes) / static_cast<double>(all_bytes);
  return engine->Launch(args, bytes, part, call.stream);
}

Status AllReduce(Engine* engine, const AllReduceCall& call) {
  const int64_t bytes = call.count * SizeOf(call.dtype);
  if (cuda::IsInline(bytes)) {
    cuda::ReduceScatterArgs args = {engine->BeginCall(*call.agreement), call.dtype, call.op};
    args.call.x = static_cast<const char*>(call.x);
    args.call.output = static_cast<char*>(call.output);
    args.call.same_parts = 1;
    std::fill_n(args.call.parts, engine->size(), cuda::Part{0, bytes, 0, bytes});
    return engine->Launch(args, bytes, 1.0 / engine->size(), call.stream);
  }
  const EvenSplit split(call.count, engine->size());
  COLLOPS_RETURN_IF_ERROR(ReduceScatterV(engine, split.Reduce(call, engine->rank())));
  return AllGatherV(engine, split.Gather(call, engine->rank()));
}

}  // namespace collops::cuda_peers

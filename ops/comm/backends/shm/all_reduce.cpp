#include "comm/backends/shm/all_reduce.h"

#include "kernels/reduce/reduce.h"

namespace collops::shm {
namespace {

// The most bytes that a rank reads in one step. Two steps read fewer, but wait for the peers twice.
constexpr int64_t kMostRead = 64 << 10;

}  // namespace

bool ReducesAtOnce(const AllReduceCall& call, int rank_size) {
  const int64_t bytes = call.count * SizeOf(call.dtype);
  return bytes <= kCallRecordBytes && bytes <= kMostRead / rank_size;
}

Status AllReduceAtOnce(Exchange* exchange, const AllReduceCall& call) {
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const Input input{static_cast<const std::byte*>(call.x), bytes};
  RETURN_IF_ERROR(exchange->Begin(*call.agreement, input));
  const void* sources[control::kMaxRanks];
  for (int r = 0; r < exchange->size(); ++r) {
    sources[r] = r == exchange->rank() ? call.x : exchange->PeerCells(r);
  }
  kernels::Reduce(call.output, sources, exchange->size(), call.count, call.dtype, call.op);
  return exchange->End();
}

}  // namespace collops::shm

#include "comm/backends/hccl/reduce_scatter_v.h"

#include <algorithm>

#include "comm/backends/hccl/counts.h"
#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/types.h"
#include "comm/backends/hccl/zero.h"

namespace collops::hccl {

Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call, int rank, int rank_size,
                      KeepAlive* keep) {
  const Api& api = engine.api();
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &type, &reduction));
  const auto is_zero = [](int64_t count) { return count == 0; };
  const bool empty = std::all_of(call.send_counts, call.send_counts + rank_size, is_zero);
  const int64_t received = call.send_counts[rank];
  // A rank that receives nothing may have no output memory, but HCCL takes no null.
  void* const x = const_cast<void*>(call.x);
  void* const output = call.output == nullptr ? x : call.output;
  // Every rank knows all counts, so all ranks skip an empty call.
  if (!empty) {
    const HcclCounts counts = TakeCounts(call.send_counts, call.sdispls, rank_size, 1, keep);
    RETURN_IF_ERROR(ToStatus(api,
                             api.reduce_scatter_v(x, counts.counts, counts.displs, output,
                                                  static_cast<uint64_t>(received), type, reduction,
                                                  engine.comm(), call.stream),
                             "HcclReduceScatterV"));
  }
  return Zero(api, call.output, {received, call.output_count}, call.dtype, call.stream);
}

}  // namespace collops::hccl

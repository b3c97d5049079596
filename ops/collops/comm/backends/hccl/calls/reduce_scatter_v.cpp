#include <algorithm>

#include "collops/comm/backends/hccl/calls/collectives.h"
#include "collops/comm/backends/hccl/calls/counts.h"
#include "collops/comm/backends/hccl/calls/device_memory.h"
#include "collops/comm/backends/hccl/library/error.h"
#include "collops/comm/backends/hccl/library/types.h"
#include "collops/core/tensor.h"

namespace collops::hccl {
namespace {

struct Reduced {
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  void* x = nullptr;
  void* output = nullptr;  // not null: HCCL takes no null, also of a rank that receives nothing
};

Status ScatterEvenly(const Engine& engine, const ReduceScatterVCall& call, Reduced* what) {
  COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &what->type, &what->reduction));
  return ToStatus(
      engine.api(),
      engine.api().reduce_scatter(what->x, what->output, static_cast<uint64_t>(call.send_counts[0]),
                                  what->type, what->reduction, engine.comm(), call.stream),
      "HcclReduceScatter");
}

Status ScatterAtOnce(const Engine& engine, const ReduceScatterVCall& call, Reduced* what,
                     KeepAlive* keep) {
  const HcclCounts counts =
      TakeCounts(call.send_counts, call.sdispls, engine.size(), 1, call.keep != nullptr, keep);
  const auto received = static_cast<uint64_t>(call.send_counts[engine.rank()]);
  return ToStatus(
      engine.api(),
      engine.api().reduce_scatter_v(what->x, counts.counts, counts.displs, what->output, received,
                                    what->type, what->reduction, engine.comm(), call.stream),
      "HcclReduceScatterV");
}

// Each rank is the root of its own slice.
Status ScatterByReductions(const Engine& engine, const ReduceScatterVCall& call, Reduced* what) {
  for (int r = 0; r < engine.size(); ++r) {
    if (call.send_counts[r] == 0) continue;
    COLLOPS_RETURN_IF_ERROR(ToStatus(
        engine.api(),
        engine.api().reduce(ElementAt(what->x, call.sdispls[r], call.dtype), what->output,
                            static_cast<uint64_t>(call.send_counts[r]), what->type, what->reduction,
                            static_cast<uint32_t>(r), engine.comm(), call.stream),
        "HcclReduce"));
  }
  return Ok();
}

Status Scatter(const Engine& engine, const ReduceScatterVCall& call, KeepAlive* keep) {
  // Every rank knows all counts, so all ranks skip an empty call.
  if (AreZero(call.send_counts, engine.size())) return Ok();
  Reduced what;
  what.x = const_cast<void*>(call.x);
  what.output = call.send_counts[engine.rank()] > 0 ? call.output : engine.stand_in();
  if (AreEven(call.send_counts, call.sdispls, engine.size())) {
    return ScatterEvenly(engine, call, &what);
  }
  if (HasOneOwner(call.send_counts, engine.size())) {
    COLLOPS_RETURN_IF_ERROR(FindReduction(call.dtype, call.op, &what.type, &what.reduction));
    return ScatterByReductions(engine, call, &what);
  }
  COLLOPS_RETURN_IF_ERROR(FindReductionV(call.dtype, call.op, &what.type, &what.reduction));
  return engine.abilities().reduce_scatter_v ? ScatterAtOnce(engine, call, &what, keep)
                                             : ScatterByReductions(engine, call, &what);
}

}  // namespace

Status CheckApart(const ReduceScatterVCall& call, int rank_size) {
  int64_t end = 0;
  for (int r = 0; r < rank_size; ++r) end = std::max(end, call.sdispls[r] + call.send_counts[r]);
  const int64_t size = SizeOf(call.dtype);
  COLLOPS_CHECK_ARG(
      !Overlap(call.x, end * size, call.output, call.output_count * size),
      ERROR_INVALID_TENSOR_ADDR, call.agreement->called(),
      ": the output overlaps x, and HCCL does not scatter in place: pass other memory");
  return Ok();
}

Status ReduceScatterV(const Engine& engine, const ReduceScatterVCall& call, KeepAlive* keep) {
  COLLOPS_RETURN_IF_ERROR(Scatter(engine, call, keep));
  const int64_t received = call.send_counts[engine.rank()];
  return Zero(engine.api(), call.output, {received, call.output_count}, call.dtype, call.stream);
}

}  // namespace collops::hccl

#include "operators/linear_parallel/schedule.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "comm/even_split.h"
#include "operators/linear_parallel/product.h"

namespace collops {
namespace {

using kernels::DeviceMatrix;
using kernels::StreamStep;

// Bytes that one AllGatherV brings, and of one tile. Long enough that a call's start does not
// count, short enough that most of a matrix is left to overlap with.
constexpr int64_t kGatherBytes = 8 << 20;
constexpr int64_t kTileBytes = 16 << 20;
// Strips begin at whole cache lines and blocks of the matrix unit.
constexpr int64_t kColumnUnit = 256;

bool Gathers(const LinearPlan& plan) {
  return plan.layout.gather.ranks.size() > 1;
}

int64_t OwnRows(const LinearPlan& plan) {
  return plan.layout.scatter.rows[static_cast<size_t>(plan.layout.scatter.index)];
}

void CutGathers(const LinearPlan& plan, StreamSchedule* schedule) {
  const RowGroup& group = plan.layout.gather;
  const int64_t most = *std::max_element(group.rows.begin(), group.rows.end());
  const int64_t at_once = std::max<int64_t>(kGatherBytes / std::max<int64_t>(RowBytes(plan), 1), 1);
  schedule->gather_rows = at_once;
  for (int64_t row = 0; row < most && plan.layout.k > 0; row += at_once) {
    GatherChunk chunk;
    chunk.row = row;
    for (size_t m = 0; m < group.rows.size(); ++m) {
      const int64_t rows = std::clamp<int64_t>(group.rows[m] - row, 0, at_once);
      chunk.counts.push_back(rows * plan.layout.k);
      chunk.displs.push_back((group.begin[m] + (rows == 0 ? 0 : row)) * plan.layout.k);
    }
    schedule->gathers.push_back(std::move(chunk));
  }
}

int64_t StripColumns(const LinearPlan& plan, const StreamSchedule& schedule) {
  if (!schedule.has_tiles) return plan.layout.n;
  const int64_t row_bytes = std::max<int64_t>(plan.layout.total_rows, 1) * int64_t{sizeof(float)};
  const int64_t columns = kTileBytes / row_bytes / kColumnUnit * kColumnUnit;
  // Not clamp(): n may be less than the unit.
  return std::min(std::max(columns, kColumnUnit), std::max<int64_t>(plan.layout.n, 1));
}

void CutStrips(const LinearPlan& plan, StreamSchedule* schedule) {
  const RowGroup& group = plan.layout.scatter;
  const int64_t most = std::max<int64_t>(StripColumns(plan, *schedule), 1);
  for (int64_t begin = 0; begin < plan.layout.n; begin += most) {
    ColumnStrip strip;
    strip.begin = begin;
    strip.columns = std::min(most, plan.layout.n - begin);
    for (size_t m = 0; m < group.rows.size(); ++m) {
      strip.counts.push_back(group.rows[m] * strip.columns);
      strip.displs.push_back(group.begin[m] * strip.columns);
    }
    schedule->strips.push_back(std::move(strip));
  }
}

DeviceMatrix Matrix(DType dtype, int64_t rows, int64_t columns, int64_t ld) {
  return {nullptr, dtype, rows, columns, ld, false};
}

StreamStep Product(const LinearPlan& plan, DType operands, DType result, int64_t rows,
                   int64_t columns) {
  const LinearLayout& layout = plan.layout;
  StreamStep step;
  step.a = Matrix(operands, rows, layout.k, layout.k);
  step.b = {nullptr,
            operands,
            layout.k,
            columns,
            layout.trans_weight ? layout.k : layout.n,
            layout.trans_weight};
  step.c = Matrix(result, rows, columns, columns);
  return step;
}

Status AddScratch(const LinearPlan& plan, const StreamStep& step, StreamSchedule* schedule) {
  if (step.c.rows == 0 || step.c.columns == 0) return Ok();
  int64_t bytes = 0;
  RETURN_IF_ERROR(plan.stream_compute->ScratchBytes(step, &bytes));
  schedule->scratch_bytes = std::max(schedule->scratch_bytes, bytes);
  return Ok();
}

// The numbers of rows that products have: of all rows, and of a member's part of a chunk.
std::vector<int64_t> RowCounts(const LinearPlan& plan, const StreamSchedule& schedule) {
  std::vector<int64_t> counts = {plan.layout.total_rows};
  for (const GatherChunk& chunk : schedule.gathers) {
    for (const int64_t count : chunk.counts) counts.push_back(count / plan.layout.k);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

Status AddSteps(const LinearPlan& plan, StreamSchedule* schedule) {
  const LinearLayout& layout = plan.layout;
  if (layout.total_rows == 0 || layout.n == 0) return Ok();
  const DType result = schedule->has_tiles ? DType::kFloat32 : plan.dtype;
  const int64_t columns[] = {schedule->strips.front().columns, schedule->strips.back().columns};
  if (schedule->has_tiles && plan.dtype != DType::kFloat32 && layout.k > 0) {
    int64_t bytes = 0;
    const StreamStep step = Product(plan, plan.dtype, result, layout.total_rows, columns[0]);
    const Status direct = plan.stream_compute->ScratchBytes(step, &bytes);
    schedule->converts = direct.code() == ERROR_UNSUPPORTED;
    if (!schedule->converts) RETURN_IF_ERROR(direct);
  }
  const DType operands = schedule->converts ? DType::kFloat32 : plan.dtype;
  const int64_t own = OwnRows(plan);
  for (const int64_t width : columns) {
    for (const int64_t rows : RowCounts(plan, *schedule)) {
      if (rows == 0 || layout.k == 0) continue;
      RETURN_IF_ERROR(AddScratch(plan, Product(plan, operands, result, rows, width), schedule));
      if (!schedule->converts) continue;
      StreamStep convert{StreamStep::kConvert,
                         Matrix(plan.dtype, rows, layout.k, layout.k),
                         {},
                         Matrix(DType::kFloat32, rows, layout.k, layout.k)};
      RETURN_IF_ERROR(AddScratch(plan, convert, schedule));
    }
    if (!schedule->has_tiles) continue;
    StreamStep store{StreamStep::kConvert,
                     Matrix(DType::kFloat32, own, width, width),
                     {},
                     Matrix(plan.dtype, own, width, layout.n)};
    if (plan.has_residual) {
      store.kind = StreamStep::kAddRow;
      store.b = Matrix(plan.dtype, 1, width, layout.n);
    }
    RETURN_IF_ERROR(AddScratch(plan, store, schedule));
  }
  if (!schedule->converts) return Ok();
  const int64_t weight_rows = layout.trans_weight ? layout.n : layout.k;
  const int64_t weight_columns = layout.trans_weight ? layout.k : layout.n;
  StreamStep weight{StreamStep::kConvert,
                    Matrix(plan.dtype, weight_rows, weight_columns, weight_columns),
                    {},
                    Matrix(DType::kFloat32, weight_rows, weight_columns, weight_columns)};
  return AddScratch(plan, weight, schedule);
}

// Scratch memory of the reduction of the widest strip, which is the first.
int64_t SumScratchBytes(const LinearPlan& plan, const StreamSchedule& schedule) {
  if (!schedule.sums || schedule.strips.empty()) return 0;
  const auto ranks = static_cast<int>(plan.layout.scatter.ranks.size());
  const int64_t columns = schedule.strips.front().columns;
  const DType dtype = DType::kFloat32;
  if (schedule.all_reduces) {
    return AllReduceScratch(*plan.communicator, dtype, ReduceOp::kSum,
                            plan.layout.total_rows * columns, ranks);
  }
  return plan.communicator->ScratchBytes(dtype, ReduceOp::kSum, OwnRows(plan) * columns, ranks);
}

void PlaceMemory(LinearPlan* plan, StreamSchedule* schedule) {
  const LinearLayout& layout = plan->layout;
  const int64_t float_bytes = sizeof(float);
  Places places(plan->stream_compute->alignment());
  const bool gathers_here = Gathers(*plan) && !plan->returns_gathered;
  schedule->gathered = places.Take(gathers_here ? layout.total_rows * RowBytes(*plan) : 0);
  if (schedule->converts) {
    schedule->float_rows = places.Take(layout.total_rows * layout.k * float_bytes);
    schedule->float_weight = places.Take(layout.n * layout.k * float_bytes);
  }
  const int64_t columns = schedule->strips.empty() ? 0 : schedule->strips.front().columns;
  const int64_t slots = schedule->strips.size() > 1 ? StreamSchedule::kSlots : 1;
  for (int64_t slot = 0; slot < slots && schedule->has_tiles; ++slot) {
    schedule->tiles[slot] = places.Take(layout.total_rows * columns * float_bytes);
    const bool scatters = schedule->sums && !schedule->all_reduces;
    schedule->slots[slot] = places.Take(scatters ? OwnRows(*plan) * columns * float_bytes : 0);
  }
  schedule->sum_scratch = places.Take(SumScratchBytes(*plan, *schedule));
  schedule->scratch = places.Take(schedule->scratch_bytes);
  plan->memory.bytes = places.bytes();
}

}  // namespace

Status PlanStreams(LinearPlan* plan) {
  CHECK_ARG(plan->divisor == 1.0F, ERROR_UNSUPPORTED,
            "LinearParallel: there is no average on a device: sum, and divide");
  auto schedule = std::make_shared<StreamSchedule>();
  const std::vector<int64_t>& rows = plan->layout.scatter.rows;
  const int64_t total = plan->layout.total_rows;
  schedule->sums = SumsPartials(*plan);
  schedule->all_reduces = schedule->sums && std::all_of(rows.begin(), rows.end(),
                                                        [&](int64_t n) { return n == total; });
  schedule->has_tiles = schedule->sums || plan->has_residual;
  if (Gathers(*plan)) CutGathers(*plan, schedule.get());
  CutStrips(*plan, schedule.get());
  RETURN_IF_ERROR(AddSteps(*plan, schedule.get()));
  PlaceMemory(plan, schedule.get());
  plan->schedule = std::move(schedule);
  return Ok();
}

}  // namespace collops

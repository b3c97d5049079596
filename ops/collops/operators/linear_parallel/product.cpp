#include "collops/operators/linear_parallel/product.h"

#include <cstdlib>

#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops {
namespace {

using kernels::GemmPlan;

// Of no more rows than this a panel of their own for each member would be half empty, and the
// weight would pass by once more for each: they are packed together once all of them are there.
constexpr int64_t kMostJoinedRows = 64;

bool JoinsRows(const LinearLayout& layout) {
  return layout.gather.ranks.size() > 1 && layout.total_rows <= kMostJoinedRows;
}

// Elements between two rows of the weight.
int64_t WeightLd(const GemmPlan& gemm) {
  return gemm.trans_weight ? gemm.k : gemm.n;
}

// Null if there is no memory.
std::shared_ptr<void> Allocate(int64_t bytes) {
  const int64_t whole = (bytes / kernels::kGemmAlignment + 1) * kernels::kGemmAlignment;
  return {std::aligned_alloc(kernels::kGemmAlignment, static_cast<size_t>(whole)), &std::free};
}

}  // namespace

Places PlaceRows(LinearPlan* plan) {
  Places places(kernels::kGemmAlignment);
  LinearMemory& memory = plan->memory;
  memory = LinearMemory();
  for (const int64_t rows : plan->layout.gather.rows) {
    memory.panels.push_back(places.Take(kernels::PackedRowsBytes(plan->gemm, rows)));
  }
  if (JoinsRows(plan->layout)) {
    memory.raw_rows = places.Take(plan->layout.total_rows * RowBytes(*plan));
  }
  memory.weight_block = places.Take(kernels::WeightBlockBytes(plan->gemm));
  return places;
}

std::shared_ptr<const void> PackWeight(const GemmPlan& gemm, const void* weight) {
  const std::shared_ptr<void> packed = Allocate(kernels::PackedWeightBytes(gemm));
  const std::shared_ptr<void> scratch = Allocate(kernels::PackWeightScratchBytes(gemm));
  if (packed == nullptr || scratch == nullptr) return nullptr;
  kernels::PackWeight(gemm, weight, WeightLd(gemm), scratch.get(), packed.get());
  return packed;
}

GatheredRows::GatheredRows(const LinearRun& run) : run_(run), row_bytes_(RowBytes(run.plan)) {
  const LinearLayout& layout = run.plan.layout;
  const LinearMemory& memory = run.plan.memory;
  for (size_t g = 0; g < layout.gather.rows.size(); ++g) {
    groups_.push_back(
        {layout.gather.begin[g], layout.gather.rows[g], run.workspace + memory.panels[g]});
  }
  packed_.assign(groups_.size(), !JoinsRows(layout));
  if (JoinsRows(layout)) raw_ = run.workspace + memory.raw_rows;
}

void GatheredRows::CopyPart(const MatrixPart& part, std::byte* to) const {
  for (int64_t row = 0; row < part.rows; ++row) {
    kernels::Copy(to + (part.row + row) * row_bytes_ + part.begin, part.data + row * part.ld_bytes,
                  part.end - part.begin);
  }
}

void GatheredRows::Take(size_t member, const MatrixPart& part) const {
  const Group& group = groups_[member];
  if (raw_ != nullptr) {
    CopyPart(part, raw_ + group.first_row * row_bytes_);
  } else {
    const int64_t item = SizeOf(run_.plan.dtype);
    kernels::PackRows(run_.plan.gemm, part.data, part.ld_bytes / item, part.row, part.rows,
                      part.begin / item, part.end / item, group.rows, group.panels);
  }
  if (run_.tensors.gathered == nullptr) return;
  CopyPart(part, static_cast<std::byte*>(run_.tensors.gathered) + group.first_row * row_bytes_);
}

void GatheredRows::PackRaw(const Group& group) const {
  const int64_t k = run_.plan.layout.k;
  kernels::PackRows(run_.plan.gemm, raw_ + group.first_row * row_bytes_, k, 0, group.rows, 0, k,
                    group.rows, group.panels);
}

// The members' panels, one after the other, have room for those of all rows together.
void GatheredRows::Join() {
  joined_ = {0, run_.plan.layout.total_rows, groups_[0].panels};
  PackRaw(joined_);
}

void GatheredRows::Pack(size_t member) {
  if (packed_[member]) return;
  packed_[member] = true;
  PackRaw(groups_[member]);
}

void LinearStrip::Multiply(const std::vector<Task>& tasks, int64_t strip, int64_t k_block,
                           int64_t ld_tile) const {
  const GemmPlan& gemm = run_.plan.gemm;
  const LinearTensors& tensors = run_.tensors;
  std::byte* const scratch = run_.workspace + run_.plan.memory.weight_block;
  if (tasks.size() == 1 && tensors.packed_weight == nullptr &&
      kernels::AreFewRows(gemm, tasks[0].group.rows)) {
    return kernels::MultiplyFewRows(gemm, tasks[0].group.panels, tasks[0].group.rows,
                                    tensors.weight, WeightLd(gemm), strip, k_block, scratch,
                                    tasks[0].tile, ld_tile);
  }
  int64_t all_rows = 0;
  for (const Task& task : tasks) all_rows += task.group.rows;
  const kernels::WeightBlock block =
      tensors.packed_weight != nullptr
          ? kernels::PackedWeightBlock(gemm, tensors.packed_weight, strip, k_block, all_rows,
                                       scratch)
          : kernels::PackWeightBlock(gemm, tensors.weight, WeightLd(gemm), strip, k_block, scratch);
  int64_t row = 0;
  for (const auto& [group, tile] : tasks) {
    const int64_t end = row + group.rows;
    kernels::MultiplyBlock(gemm, group.panels, group.rows,
                           kernels::ShareOfBlock(block, row, end, all_rows), strip, k_block, tile,
                           ld_tile);
    row = end;
  }
}

void LinearStrip::Store(const float* const* tiles, size_t num_tiles, int64_t ld_tile, int64_t strip,
                        int64_t output_row, int64_t rows) const {
  const LinearPlan& plan = run_.plan;
  const GemmPlan& gemm = plan.gemm;
  const int64_t item = SizeOf(plan.dtype);
  const int64_t first = gemm.StripBegin(strip) * item;
  const auto* const residual = static_cast<const std::byte*>(run_.tensors.residual);
  kernels::StoreSum(
      plan.dtype, tiles, static_cast<int>(num_tiles), ld_tile,
      residual == nullptr ? nullptr : residual + first, rows, gemm.StripColumns(strip),
      static_cast<std::byte*>(run_.tensors.output) + output_row * gemm.n * item + first, gemm.n,
      plan.divisor);
}

}  // namespace collops

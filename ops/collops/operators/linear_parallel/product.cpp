#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

// Of no more rows than this a panel of their own for each member would be half empty, and the
// weight would pass by once more for each: they are packed together once all of them are there.
constexpr int64_t kMostJoinedRows = 64;

bool JoinsRows(const LinearLayout& layout) {
  return layout.gather.ranks.size() > 1 && layout.total_rows <= kMostJoinedRows;
}

}  // namespace

Places PlaceRows(LinearPlan* plan) {
  Places places(plan->compute->alignment());
  LinearMemory& memory = plan->memory;
  memory = LinearMemory();
  for (const int64_t rows : plan->layout.gather.rows) {
    memory.panels.push_back(places.Take(plan->product->PackedRowsBytes(rows)));
  }
  if (JoinsRows(plan->layout)) {
    memory.raw_rows = places.Take(plan->layout.total_rows * RowBytes(*plan));
  }
  memory.weight_block = places.Take(plan->product->scratch_bytes());
  return places;
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

Status GatheredRows::CopyPart(const MatrixPart& part, std::byte* to) const {
  return run_.plan.compute->CopyRows(to + part.row * row_bytes_ + part.begin, row_bytes_, part.data,
                                     part.ld_bytes, part.rows, part.end - part.begin, run_.stream);
}

Status GatheredRows::Take(size_t member, const MatrixPart& part) const {
  const Group& group = groups_[member];
  if (raw_ != nullptr) {
    COLLOPS_RETURN_IF_ERROR(CopyPart(part, raw_ + group.first_row * row_bytes_));
  } else {
    const int64_t item = SizeOf(run_.plan.dtype);
    const kernels::RowsPiece piece = {part.data, part.ld_bytes / item, part.row,
                                      part.rows, part.begin / item,    part.end / item};
    COLLOPS_RETURN_IF_ERROR(
        run_.plan.product->PackRows(piece, group.rows, group.panels, run_.stream));
  }
  if (run_.tensors.gathered == nullptr) return Ok();
  return CopyPart(part,
                  static_cast<std::byte*>(run_.tensors.gathered) + group.first_row * row_bytes_);
}

Status GatheredRows::PackRaw(const Group& group) const {
  const int64_t k = run_.plan.product->k();
  const kernels::RowsPiece piece = {raw_ + group.first_row * row_bytes_, k, 0, group.rows, 0, k};
  return run_.plan.product->PackRows(piece, group.rows, group.panels, run_.stream);
}

// The members' panels, one after the other, have room for those of all rows together.
Status GatheredRows::Join() {
  joined_ = {0, run_.plan.layout.total_rows, groups_[0].panels};
  return PackRaw(joined_);
}

Status GatheredRows::Pack(size_t member) {
  if (packed_[member]) return Ok();
  packed_[member] = true;
  return PackRaw(groups_[member]);
}

Status LinearStrip::Multiply(const std::vector<kernels::ProductTask>& tasks, int64_t strip,
                             int64_t k_block, int64_t ld_tile) const {
  const kernels::ProductStep step = {strip, k_block, ld_tile,
                                     run_.workspace + run_.plan.memory.weight_block};
  return run_.plan.product->Multiply(tasks.data(), static_cast<int>(tasks.size()),
                                     run_.tensors.weight, step, run_.stream);
}

Status LinearStrip::Store(const float* const* tiles, size_t num_tiles, int64_t ld_tile,
                          int64_t strip, int64_t output_row, int64_t rows) const {
  const LinearPlan& plan = run_.plan;
  std::byte* output = static_cast<std::byte*>(run_.tensors.output) +
                      output_row * plan.product->n() * SizeOf(plan.dtype);
  return plan.product->StoreSum(tiles, static_cast<int>(num_tiles), ld_tile, plan.divisor,
                                run_.tensors.residual, rows, strip, output, run_.stream);
}

}  // namespace collops

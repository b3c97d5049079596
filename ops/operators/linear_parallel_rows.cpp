#include "operators/linear_parallel_rows.h"

#include "kernels/copy.h"

namespace collops {
namespace {

void CopyPart(const MatrixPart& part, int64_t row_bytes, std::byte* to) {
  to += part.row * row_bytes + part.begin;
  for (int64_t row = 0; row < part.rows; ++row) {
    kernels::Copy(to + row * row_bytes, part.data + row * part.ld_bytes, part.end - part.begin);
  }
}

}  // namespace

bool JoinsRows(const LinearLayout& layout) {
  return layout.gather.ranks.size() > 1 && layout.total_rows <= kMostJoinedRows;
}

GatheredRows::GatheredRows(const LinearPlan& plan, const LinearTensors& tensors,
                           std::byte* workspace)
    : plan_(plan), tensors_(tensors), row_bytes_(plan.gemm.k * SizeOf(plan.dtype)) {
  const LinearLayout& layout = plan.layout;
  for (size_t g = 0; g < layout.gather.rows.size(); ++g) {
    groups_.push_back(
        {layout.gather.begin[g], layout.gather.rows[g], workspace + plan.memory.panels[g]});
  }
  packed_.assign(groups_.size(), !JoinsRows(layout));
  if (JoinsRows(layout)) raw_ = workspace + plan.memory.raw_rows;
}

void GatheredRows::Take(size_t member, const MatrixPart& part) const {
  const Group& group = groups_[member];
  if (raw_ != nullptr) {
    CopyPart(part, row_bytes_, raw_ + group.first_row * row_bytes_);
  } else {
    const int64_t element_bytes = SizeOf(plan_.dtype);
    kernels::PackRows(plan_.gemm, part.data, part.ld_bytes / element_bytes, part.row, part.rows,
                      part.begin / element_bytes, part.end / element_bytes, group.rows,
                      group.panels);
  }
  if (tensors_.gathered == nullptr) return;
  CopyPart(part, row_bytes_,
           static_cast<std::byte*>(tensors_.gathered) + group.first_row * row_bytes_);
}

void GatheredRows::PackRaw(const Group& group) const {
  kernels::PackRows(plan_.gemm, raw_ + group.first_row * row_bytes_, plan_.gemm.k, 0, group.rows, 0,
                    plan_.gemm.k, group.rows, group.panels);
}

// The members' panels, one after the other, have room for those of all rows together.
void GatheredRows::Join() {
  joined_ = {0, plan_.layout.total_rows, groups_[0].panels};
  PackRaw(joined_);
}

void GatheredRows::Pack(size_t member) {
  if (packed_[member]) return;
  packed_[member] = true;
  PackRaw(groups_[member]);
}

}  // namespace collops

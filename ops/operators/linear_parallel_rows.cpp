#include "operators/linear_parallel_rows.h"

#include "kernels/copy.h"

namespace collops {

GatheredRows::GatheredRows(const LinearPlan& plan, const LinearTensors& tensors,
                           std::byte* workspace)
    : plan_(plan), tensors_(tensors) {
  const LinearLayout& layout = plan.layout;
  for (size_t g = 0; g < layout.gather.rows.size(); ++g) {
    groups_.push_back(
        {layout.gather.begin[g], layout.gather.rows[g], workspace + plan.memory.panels[g]});
  }
}

void GatheredRows::Take(size_t member, const MatrixPart& part) const {
  const Group& group = groups_[member];
  const int64_t element_bytes = SizeOf(plan_.dtype);
  kernels::PackRows(plan_.gemm, part.data, part.ld_bytes / element_bytes, part.row, part.rows,
                    part.begin / element_bytes, part.end / element_bytes, group.rows, group.panels);
  if (tensors_.gathered == nullptr) return;
  const int64_t row_bytes = plan_.gemm.k * element_bytes;
  std::byte* to = static_cast<std::byte*>(tensors_.gathered) +
                  (group.first_row + part.row) * row_bytes + part.begin;
  for (int64_t row = 0; row < part.rows; ++row) {
    kernels::Copy(to + row * row_bytes, part.data + row * part.ld_bytes, part.end - part.begin);
  }
}

}  // namespace collops

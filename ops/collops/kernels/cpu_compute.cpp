#include <cstdlib>

#include "collops/kernels/compute.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::kernels {
namespace {

class CpuProduct final : public Product {
 public:
  explicit CpuProduct(const GemmPlan& plan)
      : Product({plan.k, plan.n, kGemmStripColumns, plan.num_k_blocks()}), plan_(plan) {}

  int64_t PackedRowsBytes(int64_t rows) const override {
    return kernels::PackedRowsBytes(plan_, rows);
  }

  Status PackRows(const RowsPiece& piece, int64_t group_rows, void* packed,
                  void* /*stream*/) const override {
    kernels::PackRows(plan_, piece.x, piece.ldx, piece.row, piece.rows, piece.k_begin, piece.k_end,
                      group_rows, packed);
    return Ok();
  }

  int64_t scratch_bytes() const override { return WeightBlockBytes(plan_); }

  // A block of the weight is packed once, here or earlier, and multiplied by every task.
  Status Multiply(const ProductTask* tasks, int num_tasks, const ProductWeight& weight,
                  const ProductStep& step, void* /*stream*/) const override {
    if (num_tasks == 1 && weight.packed == nullptr && AreFewRows(plan_, tasks->rows)) {
      MultiplyFewRows(plan_, tasks->packed_rows, tasks->rows, weight.data, ldw(), step.strip,
                      step.k_block, step.scratch, tasks->tile, step.ld_tile);
      return Ok();
    }
    int64_t all_rows = 0;
    for (int i = 0; i < num_tasks; ++i) all_rows += tasks[i].rows;
    const WeightBlock block = Block(weight, step, all_rows);
    int64_t row = 0;
    for (int i = 0; i < num_tasks; ++i) {
      const ProductTask& task = tasks[i];
      const int64_t end = row + task.rows;
      MultiplyBlock(plan_, task.packed_rows, task.rows, ShareOfBlock(block, row, end, all_rows),
                    step.strip, step.k_block, task.tile, step.ld_tile);
      row = end;
    }
    return Ok();
  }

  Status StoreSum(const float* const* partials, int num_partials, int64_t ld_partial, float divisor,
                  const void* residual, int64_t rows, int64_t strip, void* output,
                  void* /*stream*/) const override {
    const int64_t offset = StripBegin(strip) * SizeOf(plan_.dtype);
    const auto* added = static_cast<const std::byte*>(residual);
    kernels::StoreSum(plan_.dtype, partials, num_partials, ld_partial,
                      added == nullptr ? nullptr : added + offset, rows, StripColumns(strip),
                      static_cast<std::byte*>(output) + offset, n(), divisor);
    return Ok();
  }

  int64_t packed_weight_bytes() const override { return PackedWeightBytes(plan_); }

  std::shared_ptr<const void> PackWeight(const void* weight) const override {
    const std::shared_ptr<void> packed = Allocate(packed_weight_bytes());
    const std::shared_ptr<void> scratch = Allocate(PackWeightScratchBytes(plan_));
    if (packed == nullptr || scratch == nullptr) return nullptr;
    kernels::PackWeight(plan_, weight, ldw(), scratch.get(), packed.get());
    return packed;
  }

 private:
  int64_t ldw() const { return plan_.trans_weight ? plan_.k : plan_.n; }

  // Null if there is no memory.
  static std::shared_ptr<void> Allocate(int64_t bytes) {
    const int64_t whole = (bytes / kGemmAlignment + 1) * kGemmAlignment;
    return {std::aligned_alloc(kGemmAlignment, static_cast<size_t>(whole)), &std::free};
  }

  WeightBlock Block(const ProductWeight& weight, const ProductStep& step, int64_t rows) const {
    if (weight.packed != nullptr) {
      return PackedWeightBlock(plan_, weight.packed, step.strip, step.k_block, rows, step.scratch);
    }
    return PackWeightBlock(plan_, weight.data, ldw(), step.strip, step.k_block, step.scratch);
  }

  const GemmPlan plan_;
};

class Cpu final : public Compute {
 public:
  int64_t row_unit() const override { return kGemmRowUnit; }
  int64_t alignment() const override { return kGemmAlignment; }

  std::shared_ptr<const Product> Plan(DType dtype, int64_t k, int64_t n,
                                      bool trans_weight) const override {
    return std::make_shared<CpuProduct>(PlanGemm(dtype, k, n, trans_weight));
  }

  Status CopyRows(void* to, int64_t ld_to, const void* from, int64_t ld_from, int64_t rows,
                  int64_t bytes, void* /*stream*/) const override {
    for (int64_t row = 0; row < rows; ++row) {
      Copy(static_cast<std::byte*>(to) + row * ld_to,
           static_cast<const std::byte*>(from) + row * ld_from, bytes);
    }
    return Ok();
  }
};

}  // namespace

const Compute* CpuCompute() {
  static const Cpu cpu;
  return &cpu;
}

}  // namespace collops::kernels

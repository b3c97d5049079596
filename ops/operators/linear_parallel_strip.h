#pragma once

#include "operators/linear_parallel_rows.h"
#include "operators/linear_parallel_run.h"

namespace collops {

// The product of packed rows and one strip of the weight's columns. Lives during one call.
class LinearStrip {
 public:
  LinearStrip(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace)
      : plan_(plan), tensors_(tensors), scratch_(workspace + plan.memory.weight_block) {}

  // Some rows, and where their product goes.
  struct Task {
    const GatheredRows::Group* group;
    float* tile;
  };

  // Multiplies all of them by one block of the weight, packed now or long ago. The tiles' rows lie
  // `ld_tile` floats apart.
  void Multiply(const std::vector<Task>& tasks, int64_t strip, int64_t k_block,
                int64_t ld_tile) const;

  // The whole sum: rounds the tile into the output's rows of the group.
  void Store(const GatheredRows::Group& group, int64_t strip, const float* tile,
             int64_t ld_tile) const;

 private:
  kernels::WeightBlock Block(int64_t strip, int64_t k_block) const;
  int64_t ldw() const { return plan_.gemm.trans_weight ? plan_.gemm.k : plan_.gemm.n; }

  const LinearPlan& plan_;
  const LinearTensors& tensors_;
  std::byte* scratch_;
};

}  // namespace collops

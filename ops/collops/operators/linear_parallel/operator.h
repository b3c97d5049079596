#pragma once

#include <memory>
#include <vector>

#include "collops/core/prepackable.h"
#include "collops/operators/linear_parallel/linear_operation.h"

namespace collops {

// x of the ranks that gather, stacked, times this rank's weight, summed over the ranks that reduce
// and cut into their rows, plus the residual; which ranks these are says the struct's type. Inputs:
// x, weight [, residual]; outputs: y [, the gathered x].
class LinearParallel : public LinearOperation, public Prepackable {
 public:
  explicit LinearParallel(const LinearSettings& settings);
  ~LinearParallel() override;

  Status Prepack(const TensorView& weight) override;

  // PURE_LINEAR is each rank's own affair: nobody waits for it, so nobody is told.
  Status Refuse(const Status& reason) override;

  // Takes over the weight that another operation has packed, if it serves this struct, too.
  void TakeWeight(const LinearParallel& from);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckCounts(const Plan& plan) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  struct PackedWeight;

  std::shared_ptr<const PackedWeight> packed_;
};

}  // namespace collops

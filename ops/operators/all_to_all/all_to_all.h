#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// Part q of the output = part `rank` of x of rank q. x has P equal parts: of its elements or, with
// `transpose`, of its columns; the output's parts [d0, d1 / P] are then stacked as rows. Input: x.
// Columns are first copied into the workspace, so that each part is contiguous.
class AllToAll : public CollectiveOperation {
 public:
  AllToAll(std::shared_ptr<Communicator> communicator, int root, bool transpose);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
  bool transpose_;
};

}  // namespace collops

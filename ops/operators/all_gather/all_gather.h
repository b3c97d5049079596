#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// output[r] = x of rank r, for every rank r: [P, ...] from x of one shape on every rank. Input: x.
class AllGather : public CollectiveOperation {
 public:
  AllGather(std::shared_ptr<Communicator> communicator, int root);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
};

}  // namespace collops

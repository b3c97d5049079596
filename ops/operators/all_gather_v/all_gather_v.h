#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// output.flat[rdispls[r] : rdispls[r] + recvCounts[r]] = x of rank r, for every rank r; every other
// element of the output is zero. Inputs: x, sendCount, recvCounts, rdispls, y.
class AllGatherV : public CollectiveOperation {
 public:
  AllGatherV(std::shared_ptr<Communicator> communicator, int root);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckCounts(const Plan& plan) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
};

}  // namespace collops

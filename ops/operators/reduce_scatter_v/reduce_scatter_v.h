#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// output.flat[:recvCount] = x.flat[sdispls[rank] : sdispls[rank] + recvCount] reduced over the
// ranks in rank order; the rest of the output is zero. Inputs: x, sendCounts, sdispls, recvCount,
// y.
class ReduceScatterV : public CollectiveOperation {
 public:
  ReduceScatterV(std::shared_ptr<Communicator> communicator, int root, ReduceOp op);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckCounts(const Plan& plan) const override;
  Status CheckSupport(DType dtype) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
  ReduceOp op_;
};

}  // namespace collops

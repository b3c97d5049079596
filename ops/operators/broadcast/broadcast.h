#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// x = x of rank `root`, in place. Input: x; there is no output.
class Broadcast : public CollectiveOperation {
 public:
  Broadcast(std::shared_ptr<Communicator> communicator, int root);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
};

}  // namespace collops

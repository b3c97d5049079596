#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// output = row block `rank` of x reduced over the ranks in rank order; x has P blocks of equal
// size. Input: x.
class ReduceScatter : public CollectiveOperation {
 public:
  ReduceScatter(std::shared_ptr<Communicator> communicator, int root, ReduceOp op,
                std::string backend);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  Status Complete(Plan* plan) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
  ReduceOp op_;
  std::string backend_;  // the struct's
};

}  // namespace collops

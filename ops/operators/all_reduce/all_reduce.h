#pragma once

#include <memory>
#include <string>
#include <vector>

#include "operators/framework/collective_operation.h"

namespace collops {

// output = x reduced over the ranks in rank order; it may be x itself. Input: x.
class AllReduce : public CollectiveOperation {
 public:
  AllReduce(std::shared_ptr<Communicator> communicator, int root, ReduceOp op, std::string backend);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  void AgreeOn(const Plan& plan, Agreement* agreement) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  int root_;
  ReduceOp op_;
  std::string backend_;  // the struct's
};

}  // namespace collops

#pragma once

#include <memory>
#include <vector>

#include "operators/all_to_all_v/exchange_operation.h"
#include "operators/all_to_all_v/param.h"

namespace collops {

// All-to-all with counts and displacements in the struct. Input: x; the output is [1, n], where n
// is the sum of recvCounts.
class AllToAllV : public ExchangeOperation {
 public:
  // `param` has passed its checks, and its lists have an element per rank.
  AllToAllV(std::shared_ptr<Communicator> communicator, const AllToAllVParam& param);

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override;
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status Complete(Plan* plan) const override;

 private:
  struct Lists;

  // Shared with the plans, which may outlive the operation.
  std::shared_ptr<const Lists> lists_;
};

}  // namespace collops

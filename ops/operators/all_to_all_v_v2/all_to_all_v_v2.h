#pragma once

#include <memory>
#include <vector>

#include "operators/all_to_all_v/exchange_operation.h"

namespace collops {

// All-to-all with counts and displacements as inputs: x, sendCounts, sdispls, recvCounts, rdispls,
// y. The output is [1, n], where n is the length of y and the sum of recvCounts.
class AllToAllVV2 : public ExchangeOperation {
 public:
  AllToAllVV2(std::shared_ptr<Communicator> communicator, int root);

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override;
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckCounts(const Plan& plan) const override;
};

}  // namespace collops

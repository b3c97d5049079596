#pragma once

#include <memory>
#include <vector>

#include "operators/send/message_operation.h"

namespace collops {

// Sends x to rank `destination`, which takes it with Recv. Input: x; there is no output.
class Send : public MessageOperation {
 public:
  Send(std::shared_ptr<Communicator> communicator, int destination);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;
};

}  // namespace collops

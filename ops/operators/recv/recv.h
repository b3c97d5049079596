#pragma once

#include <memory>
#include <vector>

#include "operators/send/message_operation.h"

namespace collops {

// output = what rank `source` sends with Send. Input: x, of which only shape and dtype are used.
class Recv : public MessageOperation {
 public:
  Recv(std::shared_ptr<Communicator> communicator, int source);

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;
};

}  // namespace collops

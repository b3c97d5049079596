#pragma once

#include "collops/operators/framework/collective_operation.h"

namespace collops {

// Send and Recv: one message between this rank and a peer, in the two phases of collectives. Send
// gives x away and has no output; Recv reads only x's shape and dtype, and has one output like it.
// Only the peer takes part, and gets a refusal. Otherwise as CollectiveOperation.
class MessageOperation : public CollectiveOperation {
 public:
  MessageOperation(OpSignature signature, Transfer::Way way, uint32_t peer);

  Status Refuse(const Status& reason) override;

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override;
  Status CheckSupport(DType dtype) const override;
  // The two ranks are compared when the message is matched, not by an agreement of all ranks.
  void AgreeOn(const Plan& /*plan*/, Agreement* /*agreement*/) const override {}
  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override;

 private:
  Transfer NewTransfer() const;

  const Transfer::Way way_;
  const int peer_;
};

}  // namespace collops

#pragma once

#include <memory>

#include "operators/framework/collective_operation.h"

namespace collops {

// What Send and Recv share: one message between this rank and a peer. The phases are those of
// collectives; only the peer takes part, and hears of a refusal. As CollectiveOperation.
class MessageOperation : public CollectiveOperation {
 public:
  MessageOperation(Signature signature, std::shared_ptr<Communicator> communicator,
                   Transfer::Way way, int peer);

  Status Refuse(const Status& reason) override;

 protected:
  Status CheckSupport(DType dtype) const override;
  // The two sides are compared at the match, not by an agreement of all ranks.
  void AgreeOn(const Plan& /*plan*/, Agreement* /*agreement*/) const override {}
  Status Move(const Plan& plan, void* data);

 private:
  Transfer NewTransfer() const;

  Transfer::Way way_;
  int peer_;
};

}  // namespace collops

#pragma once

#include <memory>

#include "operators/framework/collective_operation.h"

namespace collops {

// Base of Send and Recv: one message between this rank and a peer, in the two phases of
// collectives. Only the peer takes part, and gets a refusal. Otherwise as CollectiveOperation.
class MessageOperation : public CollectiveOperation {
 public:
  MessageOperation(OpSignature signature, std::shared_ptr<Communicator> communicator,
                   Transfer::Way way, int peer);

  Status Refuse(const Status& reason) override;

 protected:
  Status CheckSupport(DType dtype) const override;
  // The two ranks are compared when the message is matched, not by an agreement of all ranks.
  void AgreeOn(const Plan& /*plan*/, Agreement* /*agreement*/) const override {}
  Status Move(const Plan& plan, void* data);

 private:
  Transfer NewTransfer() const;

  Transfer::Way way_;
  int peer_;
};

}  // namespace collops

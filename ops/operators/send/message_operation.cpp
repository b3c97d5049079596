#include "operators/send/message_operation.h"

#include <utility>

namespace collops {

MessageOperation::MessageOperation(OpSignature signature,
                                   std::shared_ptr<Communicator> communicator, Transfer::Way way,
                                   int peer)
    : CollectiveOperation(std::move(signature), std::move(communicator)), way_(way), peer_(peer) {}

Transfer MessageOperation::NewTransfer() const {
  Transfer transfer;
  transfer.way = way_;
  transfer.peer = peer_;
  return transfer;
}

Status MessageOperation::Refuse(const Status& reason) {
  const Transfer refused = NewTransfer();
  return communicator().RefuseMessages(Name(), &refused, 1, reason);
}

Status MessageOperation::CheckSupport(DType dtype) const {
  return communicator().Supports(Primitive::kMessages, dtype, ReduceOp::kSum);
}

Status MessageOperation::Move(const Plan& plan, void* data) {
  Transfer transfer = NewTransfer();
  transfer.dtype = plan.inputs[0].dtype;
  transfer.elements = Numel(plan.inputs[0].shape);
  transfer.bytes = plan.bytes.inputs[0];
  transfer.data = data;
  return communicator().Messages(Name(), &transfer, 1);
}

}  // namespace collops

#include "collops/operators/send/message_operation.h"

#include <utility>

namespace collops {

MessageOperation::MessageOperation(OpSignature signature, Transfer::Way way, uint32_t peer)
    : CollectiveOperation(std::move(signature)), way_(way), peer_(static_cast<int>(peer)) {}

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

Status MessageOperation::DescribeOutputs(const RankPlace& /*place*/,
                                         const std::vector<TensorDesc>& inputs,
                                         std::vector<TensorDesc>* outputs) const {
  outputs->assign(way_ == Transfer::kRecv ? 1 : 0, inputs[0]);
  return Ok();
}

Status MessageOperation::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                             void* stream) {
  Transfer transfer = NewTransfer();
  transfer.dtype = plan.inputs[0].dtype;
  transfer.elements = Numel(plan.inputs[0].shape);
  transfer.bytes = plan.bytes.inputs[0];
  transfer.data = (way_ == Transfer::kRecv ? pack.outputs : pack.inputs)[0].data;
  return communicator().Messages(Name(), &transfer, 1, stream);
}

}  // namespace collops

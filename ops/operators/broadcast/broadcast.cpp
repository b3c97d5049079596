#include "operators/broadcast/broadcast.h"

#include <utility>

#include "operators/broadcast/param.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

OpSignature MakeSignature() {
  return {"Broadcast", {{"x", Role::kInPlace, kPayload, kAnyNumDims, Extent::kAny}}, {}};
}

}  // namespace

Broadcast::Broadcast(std::shared_ptr<Communicator> communicator, int root)
    : CollectiveOperation(MakeSignature(), std::move(communicator)), root_(root) {}

Status Broadcast::DescribeOutputs(const RankPlace& /*place*/,
                                  const std::vector<TensorDesc>& /*inputs*/,
                                  std::vector<TensorDesc>* outputs) const {
  outputs->clear();
  return Ok();
}

Status Broadcast::CheckSupport(DType dtype) const {
  RETURN_IF_ERROR(communicator().Supports(Primitive::kComposed, dtype, ReduceOp::kSum));
  return communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum);
}

void Broadcast::AgreeOn(const Plan& plan, Agreement* agreement) const {
  CollectiveTerms terms;
  terms.dtype = collops::Name(plan.inputs[kX].dtype);
  terms.root = root_;
  terms.x_shape = plan.inputs[kX].shape;
  AddTerms(terms, agreement);
}

Status Broadcast::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                      void* stream) {
  BroadcastCall call;
  call.agreement = &*plan.agreement;
  call.dtype = plan.inputs[kX].dtype;
  call.root = root_;
  call.data = pack.inputs[kX].data;
  call.count = Numel(plan.inputs[kX].shape);
  call.stream = stream;
  call.keep = KeepOf(plan);
  return communicator().Broadcast(call);
}

Status CreateOperation(const BroadcastParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Broadcast", param, operation, &communicator));
  *operation = std::make_unique<Broadcast>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status InferShape(const BroadcastParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return InferShapeOf(Broadcast(nullptr, param.rankRoot), param, rank_size, inputs, outputs);
}

}  // namespace collops

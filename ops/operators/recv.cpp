#include "operators/recv.h"

#include <utility>

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

Signature MakeSignature() {
  Signature signature = {"Recv", {{"x", Role::kData, kPayload, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return signature;
}

}  // namespace

Recv::Recv(std::shared_ptr<Communicator> communicator, int source)
    : MessageOperation(MakeSignature(), std::move(communicator), Transfer::kRecv, source) {}

Status Recv::DescribeOutputs(const std::vector<TensorDesc>& inputs,
                             std::vector<TensorDesc>* outputs) const {
  outputs->assign(1, inputs[kX]);
  return Ok();
}

Status Recv::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/, void* /*stream*/) {
  return Move(plan, pack.outputs[0].data);
}

}  // namespace collops

#include "operators/send.h"

#include <utility>

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

Signature MakeSignature() {
  return {"Send", {{"x", Role::kData, kPayload, kAnyNumDims, Extent::kAny}}, {}};
}

}  // namespace

Send::Send(std::shared_ptr<Communicator> communicator, int destination)
    : MessageOperation(MakeSignature(), std::move(communicator), Transfer::kSend, destination) {}

Status Send::DescribeOutputs(const std::vector<TensorDesc>& /*inputs*/,
                             std::vector<TensorDesc>* outputs) const {
  outputs->clear();
  return Ok();
}

Status Send::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/, void* /*stream*/) {
  return Move(plan, pack.inputs[kX].data);
}

}  // namespace collops

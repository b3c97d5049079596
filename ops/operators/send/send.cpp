#include "operators/send/send.h"

#include <utility>

#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"
#include "operators/send/param.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

OpSignature MakeSignature() {
  return {"Send", {{"x", Role::kData, kPayload, kAnyNumDims, Extent::kAny}}, {}};
}

}  // namespace

Send::Send(std::shared_ptr<Communicator> communicator, int destination)
    : MessageOperation(MakeSignature(), std::move(communicator), Transfer::kSend, destination) {}

Status Send::DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& /*inputs*/,
                             std::vector<TensorDesc>* outputs) const {
  outputs->clear();
  return Ok();
}

Status Send::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/, void* /*stream*/) {
  return Move(plan, pack.inputs[kX].data);
}

Status CreateOperation(const SendParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Send", param, operation, &communicator));
  *operation = std::make_unique<Send>(std::move(communicator), static_cast<int>(param.destRank));
  return Ok();
}

Status InferShape(const SendParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return InferShapeOf(Send(nullptr, static_cast<int>(param.destRank)), param, rank_size, inputs,
                      outputs);
}

}  // namespace collops

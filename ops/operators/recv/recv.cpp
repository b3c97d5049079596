#include "operators/recv/recv.h"

#include <utility>

#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"
#include "operators/recv/param.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

OpSignature MakeSignature() {
  OpSignature signature = {"Recv", {{"x", Role::kData, kPayload, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return signature;
}

}  // namespace

Recv::Recv(std::shared_ptr<Communicator> communicator, int source)
    : MessageOperation(MakeSignature(), std::move(communicator), Transfer::kRecv, source) {}

Status Recv::DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                             std::vector<TensorDesc>* outputs) const {
  outputs->assign(1, inputs[kX]);
  return Ok();
}

Status Recv::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/, void* /*stream*/) {
  return Move(plan, pack.outputs[0].data);
}

Status CreateOperation(const RecvParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("Recv", param, operation, &communicator));
  *operation = std::make_unique<Recv>(std::move(communicator), static_cast<int>(param.srcRank));
  return Ok();
}

Status InferShape(const RecvParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return InferShapeOf(Recv(nullptr, static_cast<int>(param.srcRank)), param, rank_size, inputs,
                      outputs);
}

}  // namespace collops

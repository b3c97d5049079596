#include "operators/all_gather/all_gather.h"

#include <algorithm>
#include <utility>

#include "operators/all_gather/param.h"
#include "operators/framework/even_blocks.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

OpSignature MakeSignature() {
  return {"AllGather", {{"x", Role::kData, kPayload, kAnyNumDims, Extent::kAny}}};
}

}  // namespace

AllGather::AllGather(std::shared_ptr<Communicator> communicator, int root)
    : CollectiveOperation(MakeSignature(), std::move(communicator)), root_(root) {}

Status AllGather::DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                                  std::vector<TensorDesc>* outputs) const {
  const TensorDesc& x = inputs[kX];
  CHECK_ARG(x.shape.num_dims < kMaxDims, ERROR_INVALID_TENSOR_DIM, "AllGather: x has ",
            x.shape.num_dims, " dims, the limit is ", kMaxDims - 1,
            ", because the output has one more: flatten some");
  TensorDesc output = x;
  output.shape.num_dims = x.shape.num_dims + 1;
  output.shape.dims[0] = place.rank_size;
  std::copy_n(x.shape.dims, x.shape.num_dims, output.shape.dims + 1);
  outputs->assign(1, output);
  return Ok();
}

Status AllGather::CheckSupport(DType dtype) const {
  RETURN_IF_ERROR(communicator().Supports(Primitive::kComposed, dtype, ReduceOp::kSum));
  return communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum);
}

Status AllGather::Complete(Plan* plan) const {
  plan->details =
      std::make_unique<EvenBlocks>(communicator().size(), Numel(plan->inputs[kX].shape));
  return Ok();
}

void AllGather::AgreeOn(const Plan& plan, Agreement* agreement) const {
  CollectiveTerms terms;
  terms.dtype = collops::Name(plan.inputs[kX].dtype);
  terms.root = root_;
  terms.x_shape = plan.inputs[kX].shape;
  AddTerms(terms, agreement);
  const EvenBlocks& blocks = BlocksOf(plan);
  agreement->EqualList("recvCounts", blocks.counts.data(), communicator().size())
      .EqualList("rdispls", blocks.displs.data(), communicator().size());
}

Status AllGather::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                      void* stream) {
  const EvenBlocks& blocks = BlocksOf(plan);
  AllGatherVCall call;
  call.agreement = &*plan.agreement;
  call.dtype = plan.inputs[kX].dtype;
  call.x = pack.inputs[kX].data;
  call.output = pack.outputs[0].data;
  call.recv_counts = blocks.counts.data();
  call.rdispls = blocks.displs.data();
  call.stream = stream;
  call.keep = KeepOf(plan);
  return communicator().AllGatherV(call);
}

Status CreateOperation(const AllGatherParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllGather", param, operation, &communicator));
  *operation = std::make_unique<AllGather>(std::move(communicator), param.rankRoot);
  return Ok();
}

Status InferShape(const AllGatherParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return InferShapeOf(AllGather(nullptr, param.rankRoot), param, rank_size, inputs, outputs);
}

}  // namespace collops

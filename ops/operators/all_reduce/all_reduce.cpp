#include "operators/all_reduce/all_reduce.h"

#include <utility>

#include "operators/all_reduce/param.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"
#include "operators/framework/reduction_dtypes.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

OpSignature MakeSignature() {
  OpSignature signature = {"AllReduce",
                           {{"x", Role::kData, kReducible, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return signature;
}

}  // namespace

AllReduce::AllReduce(std::shared_ptr<Communicator> communicator, int root, ReduceOp op,
                     std::string backend)
    : CollectiveOperation(MakeSignature(), std::move(communicator)),
      root_(root),
      op_(op),
      backend_(std::move(backend)) {}

Status AllReduce::DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                                  std::vector<TensorDesc>* outputs) const {
  RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[kX].dtype));
  outputs->assign(1, inputs[kX]);
  return Ok();
}

Status AllReduce::CheckSupport(DType dtype) const {
  RETURN_IF_ERROR(communicator().Supports(Primitive::kComposed, dtype, op_));
  return communicator().Supports(Primitive::kReduce, dtype, op_);
}

void AllReduce::AgreeOn(const Plan& plan, Agreement* agreement) const {
  CollectiveTerms terms;
  terms.dtype = collops::Name(plan.inputs[kX].dtype);
  terms.reduction = collops::Name(op_);
  terms.root = root_;
  terms.x_shape = plan.inputs[kX].shape;
  AddTerms(terms, agreement);
}

Status AllReduce::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                      void* stream) {
  AllReduceCall call;
  call.agreement = &*plan.agreement;
  call.dtype = plan.inputs[kX].dtype;
  call.op = op_;
  call.x = pack.inputs[kX].data;
  call.count = Numel(plan.inputs[kX].shape);
  call.output = pack.outputs[0].data;
  call.stream = stream;
  call.keep = KeepOf(plan);
  return communicator().AllReduce(call);
}

Status CreateOperation(const AllReduceParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllReduce", param, operation, &communicator));
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("AllReduce", param.allReduceType, &op));
  *operation =
      std::make_unique<AllReduce>(std::move(communicator), param.rankRoot, op, param.backend);
  return Ok();
}

Status InferShape(const AllReduceParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("AllReduce", param.allReduceType, &op));
  return InferShapeOf(AllReduce(nullptr, param.rankRoot, op, param.backend), param, rank_size,
                      inputs, outputs);
}

}  // namespace collops

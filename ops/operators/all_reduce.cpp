#include "operators/all_reduce.h"

#include <utility>

#include "operators/reduction_dtypes.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

Signature MakeSignature() {
  Signature signature = {"AllReduce",
                         CallKind::kAllReduce,
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

Status AllReduce::DescribeOutputs(const std::vector<TensorDesc>& inputs,
                                  std::vector<TensorDesc>* outputs) const {
  RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[kX].dtype));
  outputs->assign(1, inputs[kX]);
  return Ok();
}

Status AllReduce::CheckSupport(DType dtype) const {
  return communicator().Supports(CallKind::kAllReduce, dtype, op_);
}

Status AllReduce::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                      void* stream) {
  AllReduceCall call;
  call.dtype = plan.inputs[kX].dtype;
  call.op = op_;
  call.root = root_;
  call.x = pack.inputs[kX].data;
  call.x_shape = plan.inputs[kX].shape;
  call.count = Numel(call.x_shape);
  call.output = pack.outputs[0].data;
  call.stream = stream;
  return communicator().AllReduce(call);
}

}  // namespace collops

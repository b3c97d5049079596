#include "collops/comm/even_split.h"
#include "collops/operators/all_reduce/param.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/reduction_dtypes.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

OpSignature MakeSignature() {
  OpSignature signature = {"AllReduce",
                           {{"x", Role::kData, kReducible, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return signature;
}

// output = x reduced over the ranks in rank order; it may be x itself. Input: x.
class AllReduce : public CollectiveOperation {
 public:
  explicit AllReduce(const AllReduceParam& param)
      : CollectiveOperation(MakeSignature()),
        root_(param.rankRoot),
        op_(ReduceOpOf(param.allReduceType)),
        backend_(param.backend) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    COLLOPS_RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[kX].dtype));
    outputs->assign(1, inputs[kX]);
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kEvenReduce, dtype, op_);
  }

  Status Complete(Plan* plan) const override {
    const TensorDesc& x = plan->inputs[kX];
    plan->workspace_bytes = static_cast<uint64_t>(
        AllReduceScratch(communicator(), x.dtype, op_, Numel(x.shape), communicator().size()));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.reduction = collops::Name(op_);
    terms.x_shape = plan.inputs[kX].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    auto call = CallOf<AllReduceCall>(plan, stream);
    call.op = op_;
    call.x = pack.inputs[kX].data;
    call.count = Numel(plan.inputs[kX].shape);
    call.output = pack.outputs[0].data;
    call.scratch = workspace;
    return communicator().AllReduce(call);
  }

 private:
  const int root_;
  const ReduceOp op_;
  const std::string backend_;  // the struct's
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllReduceParam& param) {
  return std::make_unique<AllReduce>(param);
}
template Status CreateOperation(const AllReduceParam& param, std::unique_ptr<Operation>* operation);
template Status InferShape(const AllReduceParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

#include <utility>

#include "collops/comm/even_split.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

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
    COLLOPS_RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[0].dtype));
    outputs->assign(1, inputs[0]);
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kEvenReduce, dtype, op_);
  }

  Status Complete(Plan* plan) const override {
    const TensorDesc& x = plan->inputs[0];
    plan->workspace_bytes = static_cast<uint64_t>(
        AllReduceScratch(communicator(), x.dtype, op_, Numel(x.shape), communicator().size()));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.reduction = collops::Name(op_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    auto call = CallOf<AllReduceCall>(plan, stream);
    call.op = op_;
    call.x = pack.inputs[0].data;
    call.count = Numel(plan.inputs[0].shape);
    call.output = pack.outputs[0].data;
    call.scratch = workspace;
    return communicator().AllReduce(call);
  }

 private:
  static OpSignature MakeSignature() {
    OpSignature signature = {"AllReduce",
                             {{"x", Role::kData, kReducible, kAnyNumDims, Extent::kAny}}};
    signature.may_be_in_place = true;
    return signature;
  }

  const int root_;
  const ReduceOp op_;
  const std::string backend_;  // the struct's
};

class AllReducePlan : public PlanOf<AllReduceCall> {
 public:
  explicit AllReducePlan(ReduceOp op)
      : PlanOf("all_reduce", "AllReduce", &Communicator::AllReduce), op_(op) {}

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    const DType dtype = tensors.x.view.desc.dtype;
    return static_cast<uint64_t>(AllReduceScratch(communicator, ReducedAs(dtype), op_,
                                                  tensors.x.numel * PartsOf(dtype),
                                                  communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 AllReduceCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckPair(tensors, method(), x.numel, x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), 0, ", or pass x itself as out"));
    const DType dtype = x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(x.view.desc, op_, method()));
    call->dtype = ReducedAs(dtype);
    call->op = op_;
    call->x = x.view.data;
    call->count = x.numel * PartsOf(dtype);
    call->output = tensors.out.view.data;
    return communicator.Supports(Primitive::kEvenReduce, call->dtype, op_);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = Name(x.view.desc.dtype);
    terms.reduction = Name(op_);
    AddSizeOf(communicator, x, &terms);
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
  }

 private:
  const ReduceOp op_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<AllReduceParam>() {
  using P = AllReduceParam;
  static const auto fields = StructFields<P>("AllReduceParam")
                                 .AddRank()
                                 .Add<&P::allReduceType>("allReduceType")
                                 .AddCommunicator()
                                 .Add<&P::quantType>("quantType")
                                 .Add<&P::outDataType>("outDataType")
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllReduceParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllReduce", param, kLcclToo));
  COLLOPS_RETURN_IF_ERROR(
      CheckReduceType("AllReduce", "allReduceType", param.allReduceType, param.backend));
  COLLOPS_CHECK_ARG(
      param.quantType == AllReduceParam::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM,
      "AllReduce: quantType ", static_cast<int>(param.quantType),
      " asks for a quantised AllReduce, which is not supported: leave quantType at 0 ",
      "(QUANT_TYPE_UNQUANT) and outDataType out");
  return CheckDistributed("AllReduce", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllReduceParam& param) {
  return std::make_unique<AllReduce>(param);
}
template struct ParamFunctions<AllReduceParam>;

Status PlanAllReduce(const PlainCall& call, const Communicator& /*group*/, PlanPointer* plan) {
  *plan = std::make_shared<AllReducePlan>(call.op);
  return Ok();
}

}  // namespace collops

#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

// x = x of rank `root`, in place. Input: x; there is no output.
class Broadcast : public CollectiveOperation {
 public:
  explicit Broadcast(const BroadcastParam& param)
      : CollectiveOperation(OpSignature{
            "Broadcast", {{"x", Role::kInPlace, kMovable, kAnyNumDims, Extent::kAny}}, {}}),
        root_(param.rankRoot) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& /*inputs*/,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->clear();
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum);
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    auto call = CallOf<BroadcastCall>(plan, stream);
    call.root = root_;
    call.data = pack.inputs[0].data;
    call.count = Numel(plan.inputs[0].shape);
    return communicator().Broadcast(call);
  }

 private:
  const int root_;
};

class BroadcastPlan : public PlanOf<BroadcastCall> {
 public:
  BroadcastPlan(int root, const std::string& type)
      : PlanOf("broadcast", "Broadcast", &Communicator::Broadcast), root_(root), type_(type) {}

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 BroadcastCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckWhole(x, method(), "x", x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckWritable(x, method(), "x"));
    call->dtype = x.view.desc.dtype;
    call->root = root_;
    call->data = x.view.data;
    call->count = x.numel;
    return communicator.Supports(Primitive::kGather, call->dtype, ReduceOp::kSum);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(x.view.desc.dtype) : type_.c_str();
    terms.root = root_;
    AddSizeOf(communicator, x, &terms);
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
  }

 private:
  const int root_;
  const std::string type_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<BroadcastParam>() {
  using P = BroadcastParam;
  static const auto fields = StructFields<P>("BroadcastParam")
                                 .AddRank()
                                 .AddCommunicator(/*backend_first=*/false)
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const BroadcastParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Broadcast", param, kLcclToo));
  return CheckDistributed("Broadcast", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const BroadcastParam& param) {
  return std::make_unique<Broadcast>(param);
}
template struct ParamFunctions<BroadcastParam>;

Status PlanBroadcast(const PlainCall& call, const Communicator& group, PlanPointer* plan) {
  COLLOPS_RETURN_IF_ERROR(CheckRoot(call.name(), call.root, group.size()));
  *plan = std::make_shared<BroadcastPlan>(static_cast<int>(call.root), call.x.type);
  return Ok();
}

}  // namespace collops

#include "collops/operators/broadcast/param.h"
#include "collops/operators/framework/make_operator.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

OpSignature MakeSignature() {
  return {"Broadcast", {{"x", Role::kInPlace, kMovable, kAnyNumDims, Extent::kAny}}, {}};
}

// x = x of rank `root`, in place. Input: x; there is no output.
class Broadcast : public CollectiveOperation {
 public:
  explicit Broadcast(const BroadcastParam& param)
      : CollectiveOperation(MakeSignature()), root_(param.rankRoot) {}

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
    terms.x_shape = plan.inputs[kX].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    auto call = CallOf<BroadcastCall>(plan, stream);
    call.root = root_;
    call.data = pack.inputs[kX].data;
    call.count = Numel(plan.inputs[kX].shape);
    return communicator().Broadcast(call);
  }

 private:
  const int root_;
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const BroadcastParam& param) {
  return std::make_unique<Broadcast>(param);
}
template Status CreateOperation(const BroadcastParam& param, std::unique_ptr<Operation>* operation);
template Status InferShape(const BroadcastParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

#include <algorithm>

#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"

namespace collops {
namespace {

// output[r] = x of rank r, for every rank r: [P, ...] from x of one shape on every rank. Input: x.
class AllGather : public CollectiveOperation {
 public:
  explicit AllGather(const AllGatherParam& param)
      : CollectiveOperation(
            OpSignature{"AllGather", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}}),
        root_(param.rankRoot) {}

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const TensorDesc& x = inputs[0];
    COLLOPS_CHECK_ARG(x.shape.num_dims < kMaxDims, ERROR_INVALID_TENSOR_DIM, "AllGather: x has ",
                      x.shape.num_dims, " dims, the limit is ", kMaxDims - 1,
                      ", because the output has one more: flatten some");
    TensorDesc output = x;
    output.shape.num_dims = x.shape.num_dims + 1;
    output.shape.dims[0] = place.rank_size;
    std::copy_n(x.shape.dims, x.shape.num_dims, output.shape.dims + 1);
    outputs->assign(1, output);
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum);
  }

  Status Complete(Plan* plan) const override {
    plan->details =
        std::make_unique<EvenBlocks>(communicator().size(), Numel(plan->inputs[0].shape));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
    const EvenBlocks& blocks = BlocksOf(plan);
    agreement->EqualList("recvCounts", blocks.counts.data(), communicator().size())
        .EqualList("rdispls", blocks.displs.data(), communicator().size());
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    const EvenBlocks& blocks = BlocksOf(plan);
    auto call = CallOf<AllGatherVCall>(plan, stream);
    call.x = pack.inputs[0].data;
    call.output = pack.outputs[0].data;
    call.recv_counts = blocks.counts.data();
    call.rdispls = blocks.displs.data();
    return communicator().AllGatherV(call);
  }

 private:
  const int root_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<AllGatherParam>() {
  using P = AllGatherParam;
  static const auto fields =
      StructFields<P>("AllGatherParam").AddRank().AddCommunicator().Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllGatherParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllGather", param, kLcclToo));
  return CheckDistributed("AllGather", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllGatherParam& param) {
  return std::make_unique<AllGather>(param);
}
template struct ParamFunctions<AllGatherParam>;

}  // namespace collops

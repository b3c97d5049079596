#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"

namespace collops {
namespace {

// output = row block `rank` of x reduced over the ranks in rank order; x has P blocks of equal
// size. Input: x.
class ReduceScatter : public CollectiveOperation {
 public:
  explicit ReduceScatter(const ReduceScatterParam& param)
      : CollectiveOperation(MakeSignature(param.backend)),
        root_(param.rankRoot),
        op_(ReduceOpOf(param.reduceType)),
        backend_(param.backend) {}

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const int size = place.rank_size;
    const int64_t rows = inputs[0].shape[0];
    COLLOPS_RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[0].dtype));
    COLLOPS_CHECK_ARG(rows % size == 0, ERROR_INVALID_TENSOR_DIM, "ReduceScatter: x has ", rows,
                      " rows, which do not divide evenly among ", size, " ranks: pad x to ",
                      rows + size - rows % size, " rows, or use ReduceScatterV");
    outputs->assign(1, inputs[0]);
    outputs->front().shape.dims[0] = rows / size;
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kEvenReduce, dtype, op_);
  }

  Status Complete(Plan* plan) const override {
    plan->details =
        std::make_unique<EvenBlocks>(communicator().size(), Numel(plan->outputs[0].shape));
    plan->workspace_bytes = static_cast<uint64_t>(communicator().ScratchBytes(
        plan->inputs[0].dtype, op_, Numel(plan->outputs[0].shape), communicator().size()));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.reduction = collops::Name(op_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
    const EvenBlocks& blocks = BlocksOf(plan);
    agreement->EqualList("sendCounts", blocks.counts.data(), communicator().size())
        .EqualList("sdispls", blocks.displs.data(), communicator().size());
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    const EvenBlocks& blocks = BlocksOf(plan);
    auto call = CallOf<ReduceScatterVCall>(plan, stream);
    call.op = op_;
    call.x = pack.inputs[0].data;
    call.output = pack.outputs[0].data;
    call.output_count = blocks.counts[0];
    call.send_counts = blocks.counts.data();
    call.sdispls = blocks.displs.data();
    call.scratch = workspace;
    return communicator().ReduceScatterV(call);
  }

 private:
  // ATB's ReduceScatter, unlike its AllReduce, takes no int64 on either of its backends.
  static OpSignature MakeSignature(const std::string& backend) {
    const bool is_atb = backend == "hccl" || backend == "lccl";
    const DTypeSet payload = is_atb ? kReducible & ~SetOf(DType::kInt64) : kReducible;
    return {"ReduceScatter", {{"x", Role::kData, payload, kAnyNumDims, Extent::kAny}}};
  }

  const int root_;
  const ReduceOp op_;
  const std::string backend_;  // the struct's
};

}  // namespace

template <>
const FieldTable& FieldsOf<ReduceScatterParam>() {
  using P = ReduceScatterParam;
  static const auto fields = StructFields<P>("ReduceScatterParam")
                                 .AddRank()
                                 .Add<&P::reduceType>("reduceType")
                                 .AddCommunicator(/*backend_first=*/false)
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const ReduceScatterParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("ReduceScatter", param, kLcclToo));
  COLLOPS_RETURN_IF_ERROR(
      CheckReduceType("ReduceScatter", "reduceType", param.reduceType, param.backend));
  return CheckDistributed("ReduceScatter", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const ReduceScatterParam& param) {
  return std::make_unique<ReduceScatter>(param);
}
template struct ParamFunctions<ReduceScatterParam>;

}  // namespace collops

#include <algorithm>
#include <utility>

#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

// output.flat[:recvCount] = x.flat[sdispls[rank] : sdispls[rank] + recvCount] reduced over the
// ranks in rank order; the rest of the output is zero. Inputs: x, sendCounts, sdispls, recvCount,
// y.
class ReduceScatterV : public CollectiveOperation {
 public:
  explicit ReduceScatterV(const ReduceScatterVParam& param)
      : CollectiveOperation(
            OpSignature{"ReduceScatterV",
                        {{"x", Role::kData, kReducible, 2, Extent::kAny},
                         {"sendCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"sdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"recvCount", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kOne},
                         {"y", Role::kLength, SetOf(DType::kFloat16), 1, Extent::kAny}}}),
        root_(param.rankRoot),
        op_(ReduceOpOf(param.reduceType)) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->assign(1, inputs[kX]);
    outputs->front().shape.dims[0] = inputs[kY].shape[0];
    return Ok();
  }

  Status CheckCounts(const Plan& plan) const override {
    const Counts& counts = plan.counts;
    const std::vector<int64_t>& recv_count = counts[kRecvCount];
    const int64_t output_count = Numel(plan.outputs[0].shape);
    COLLOPS_RETURN_IF_ERROR(
        CheckEnds(kWords, {counts[kSendCounts], counts[kSdispls]}, Numel(plan.inputs[kX].shape)));
    COLLOPS_CHECK_ARG(recv_count.empty() || recv_count[0] <= output_count, ERROR_INVALID_TENSOR_DIM,
                      "ReduceScatterV: recvCount ", recv_count[0], " exceeds the output's ",
                      output_count, " elements: ask for more rows with y");
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(signature(), counts));
    if (counts[kSendCounts].empty() || recv_count.empty()) return Ok();
    const int rank = communicator().rank();
    const int64_t sent = counts[kSendCounts][static_cast<size_t>(rank)];
    COLLOPS_CHECK_ARG(sent == recv_count[0], ERROR_INVALID_PARAM, "ReduceScatterV: sendCounts[",
                      rank, "] is ", sent, " but this rank ", rank, " has recvCount ",
                      recv_count[0], ": they must be equal");
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kReduce, dtype, op_);
  }

  Status Complete(Plan* plan) const override {
    const int64_t own = plan->counts[kRecvCount][0];
    plan->workspace_bytes = static_cast<uint64_t>(
        communicator().ScratchBytes(plan->inputs[kX].dtype, op_, own, communicator().size()));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.reduction = collops::Name(op_);
    terms.x_shape = plan.inputs[kX].shape;
    AddTerms(terms, agreement);
    agreement->EqualList("sendCounts", plan.counts[kSendCounts].data(), communicator().size())
        .EqualList("sdispls", plan.counts[kSdispls].data(), communicator().size());
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    auto call = CallOf<ReduceScatterVCall>(plan, stream);
    call.op = op_;
    call.x = pack.inputs[kX].data;
    call.output = pack.outputs[0].data;
    call.output_count = Numel(plan.outputs[0].shape);
    call.send_counts = plan.counts[kSendCounts].data();
    call.sdispls = plan.counts[kSdispls].data();
    call.scratch = workspace;
    return communicator().ReduceScatterV(call);
  }

 private:
  enum Input { kX, kSendCounts, kSdispls, kRecvCount, kY };
  static constexpr BlockWords kWords = {"ReduceScatterV", "slice", "sdispls", "sendCounts", "x's"};

  const int root_;
  const ReduceOp op_;
};

bool HasEqualSizes(const Rows& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t size) { return size == rows[0]; });
}

class ScatterPlan : public PlanOf<ReduceScatterVCall> {
 public:
  // `pairs`: the blocks of complex numbers, in real ones.
  ScatterPlan(const PlainCall& call, RowBlocks blocks, RowBlocks pairs)
      : PlanOf(call.name(), call.operation(), &Communicator::ReduceScatterV),
        blocks_(std::move(blocks)),
        pairs_(std::move(pairs)),
        dim_(call.x.dim),
        root_(static_cast<int>(call.root)),
        op_(call.op),
        even_(call.method == PlainCall::kReduce || HasEqualSizes(blocks_.rows())) {}

  Rows rows() const override { return blocks_.rows(); }

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    const DType dtype = tensors.x.view.desc.dtype;
    return static_cast<uint64_t>(communicator.ScratchBytes(
        ReducedAs(dtype), op_, Parts(dtype).count(communicator.rank()), communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 ReduceScatterVCall* call) const override {
    const int rank = communicator.rank();
    const int64_t own = blocks_.count(rank);
    COLLOPS_RETURN_IF_ERROR(
        CheckPair(tensors, method(), blocks_.total(), own, communicator.device()));
    // No other rank reads this rank's block of its x, and the blocks lie apart.
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), blocks_.begin(rank),
                                       ", or pass this rank's own block of x as out"));
    const DType dtype = tensors.x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(tensors.x.view.desc, op_, method()));
    const RowBlocks& parts = Parts(dtype);
    call->dtype = ReducedAs(dtype);
    call->op = op_;
    call->x = tensors.x.view.data;
    call->output = tensors.out.view.data;
    call->output_count = parts.count(rank);
    call->send_counts = parts.counts();
    call->sdispls = parts.displs();
    return communicator.Supports(even_ ? Primitive::kEvenReduce : Primitive::kReduce, call->dtype,
                                 op_);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = Name(x.view.desc.dtype);
    terms.reduction = Name(op_);
    terms.root = root_;
    terms.dim = dim_;
    AddSizeOf(communicator, x, &terms);
    AddTerms(terms, agreement);
    agreement->EqualList("sendCounts", blocks_.counts(), blocks_.size())
        .EqualList("sdispls", blocks_.displs(), blocks_.size())
        .InPlainWords(method(), blocks_.row_elements());
  }

 private:
  const RowBlocks& Parts(DType dtype) const { return IsComplex(dtype) ? pairs_ : blocks_; }

  const RowBlocks blocks_;
  const RowBlocks pairs_;
  const int dim_;
  const int root_;
  const ReduceOp op_;
  const bool even_;  // or all of it is one rank's
};

// Rows of x for each rank: those of the call, or shared out as numpy.array_split does. reduce
// counts each element as a row.
Status FindScatteredRows(const PlainCall& call, int64_t have, int rank_size, Rows* rows) {
  if (call.method == PlainCall::kReduce) {
    COLLOPS_RETURN_IF_ERROR(CheckRoot(call.name(), call.root, rank_size));
    rows->assign(static_cast<size_t>(rank_size), 0);
    (*rows)[static_cast<size_t>(call.root)] = have;
    return Ok();
  }
  if (call.method == PlainCall::kReduceScatter) {
    const int64_t more = have % rank_size;
    COLLOPS_CHECK_ARG(more == 0, ERROR_INVALID_TENSOR_DIM, call.name(), ": x has ", have,
                      " rows, which do not divide evenly among ", rank_size, " ranks: pad x to ",
                      have + rank_size - more, " rows, or use reduce_scatterv");
  }
  *rows = call.sizes ? *call.sizes : SplitEvenly(have, rank_size);
  return CheckSizes(call.name(), "sizes", *rows, rank_size);
}

}  // namespace

template <>
const FieldTable& FieldsOf<ReduceScatterVParam>() {
  using P = ReduceScatterVParam;
  static const auto fields = StructFields<P>("ReduceScatterVParam")
                                 .AddRank()
                                 .Add<&P::sendCounts>("sendCounts")
                                 .Add<&P::sdispls>("sdispls")
                                 .Add<&P::recvCount>("recvCount")
                                 .Add<&P::reduceType>("reduceType")
                                 .AddCommunicator(/*backend_first=*/false)
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const ReduceScatterVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("ReduceScatterV", param, kEngineNames));
  const std::string& type = param.reduceType;
  COLLOPS_CHECK_ARG(type == "sum" || type == "max" || type == "min", ERROR_INVALID_PARAM,
                    "ReduceScatterV: reduceType must be \"sum\", \"max\" or \"min\", got \"", type,
                    "\"");
  return CheckDistributed("ReduceScatterV", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const ReduceScatterVParam& param) {
  return std::make_unique<ReduceScatterV>(param);
}
template struct ParamFunctions<ReduceScatterVParam>;

Status PlanScatter(const PlainCall& call, const Communicator& group, PlanPointer* plan) {
  RowShape x = call.x;
  if (call.method == PlainCall::kReduce) {
    int64_t elements = 1;
    for (const int64_t size : x.sizes) elements *= size;
    x.sizes = {elements};
  }
  Rows rows;
  COLLOPS_RETURN_IF_ERROR(FindScatteredRows(call, x.rows(), group.size(), &rows));
  COLLOPS_RETURN_IF_ERROR(CheckSum(call.name(), "sizes", rows, x));
  RowBlocks blocks, pairs;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), x, rows, &blocks));
  x.unit = 2;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), x, rows, &pairs));
  *plan = std::make_shared<ScatterPlan>(call, std::move(blocks), std::move(pairs));
  return Ok();
}

}  // namespace collops

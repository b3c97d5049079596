#include <algorithm>
#include <utility>

#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

// output.flat[rdispls[r] : rdispls[r] + recvCounts[r]] = x of rank r, for every rank r; every other
// element of the output is zero. Inputs: x, sendCount, recvCounts, rdispls, y.
class AllGatherV : public CollectiveOperation {
 public:
  explicit AllGatherV(const AllGatherVParam& param)
      : CollectiveOperation(
            OpSignature{"AllGatherV",
                        {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny},
                         {"sendCount", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kOne},
                         {"recvCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"rdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
                         {"y", Role::kLength, SetOf(DType::kFloat16), 1, Extent::kAny}}}),
        root_(param.rankRoot) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->assign(1, inputs[kX]);
    outputs->front().shape.dims[0] = inputs[kY].shape[0];
    return Ok();
  }

  Status CheckCounts(const Plan& plan) const override {
    const std::vector<int64_t>& send_count = plan.counts[kSendCount];
    const std::vector<int64_t>& recv_counts = plan.counts[kRecvCounts];
    const RankBlocks blocks = {recv_counts, plan.counts[kRdispls]};
    const int64_t x_count = Numel(plan.inputs[kX].shape);
    COLLOPS_CHECK_ARG(send_count.empty() || send_count[0] <= x_count, ERROR_INVALID_TENSOR_DIM,
                      "AllGatherV: sendCount ", send_count[0], " exceeds x's ", x_count,
                      " elements");
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kWords, blocks, Numel(plan.outputs[0].shape)));
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(signature(), plan.counts));
    const auto is_zero = [](int64_t count) { return count == 0; };
    COLLOPS_CHECK_ARG(
        recv_counts.empty() || !std::all_of(recv_counts.begin(), recv_counts.end(), is_zero),
        ERROR_INVALID_PARAM,
        "AllGatherV: all recvCounts are 0: at least one rank must send, or leave the call out");
    if (!send_count.empty() && !recv_counts.empty()) {
      const int rank = communicator().rank();
      const int64_t received = recv_counts[static_cast<size_t>(rank)];
      COLLOPS_CHECK_ARG(received == send_count[0], ERROR_INVALID_PARAM, "AllGatherV: recvCounts[",
                        rank, "] is ", received, " but this rank ", rank, " has sendCount ",
                        send_count[0], ": they must be equal");
    }
    return CheckDisjoint(kWords, blocks);
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum);
  }

  Status Complete(Plan* plan) const override {
    plan->gaps = FindGaps({plan->counts[kRecvCounts], plan->counts[kRdispls]},
                          Numel(plan->outputs[0].shape));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    AddTerms(TermsOf(plan, root_), agreement);
    agreement->EqualList("recvCounts", plan.counts[kRecvCounts].data(), communicator().size())
        .EqualList("rdispls", plan.counts[kRdispls].data(), communicator().size());
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    auto call = CallOf<AllGatherVCall>(plan, stream);
    call.x = pack.inputs[kX].data;
    call.output = pack.outputs[0].data;
    call.recv_counts = plan.counts[kRecvCounts].data();
    call.rdispls = plan.counts[kRdispls].data();
    call.gaps = plan.gaps.data();
    call.num_gaps = static_cast<int64_t>(plan.gaps.size());
    return communicator().AllGatherV(call);
  }

 private:
  enum Input { kX, kSendCount, kRecvCounts, kRdispls, kY };
  static constexpr BlockWords kWords = {"AllGatherV", "block", "rdispls", "recvCounts",
                                        "the output's"};

  const int root_;
};

class GatherPlan : public PlanOf<AllGatherVCall> {
 public:
  GatherPlan(const PlainCall& call, RowBlocks blocks)
      : PlanOf(call.name(), call.operation(), &Communicator::AllGatherV),
        blocks_(std::move(blocks)),
        type_(call.x.type),
        num_tensors_(call.num_tensors),
        dim_(call.x.dim),
        one_shape_(call.method == PlainCall::kAllGather),
        common_shape_(ShapeBesideRows(call.x)) {}

  Rows rows() const override { return blocks_.rows(); }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 AllGatherVCall* call) const override {
    const int rank = communicator.rank();
    COLLOPS_RETURN_IF_ERROR(
        CheckPair(tensors, method(), blocks_.count(rank), blocks_.total(), communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), -blocks_.begin(rank),
                                       ", or pass x as this rank's own block of out"));
    call->dtype = tensors.x.view.desc.dtype;
    call->x = tensors.x.view.data;
    call->output = tensors.out.view.data;
    call->recv_counts = blocks_.counts();
    call->rdispls = blocks_.displs();
    return communicator.Supports(Primitive::kGather, call->dtype, ReduceOp::kSum);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(x.view.desc.dtype) : type_.c_str();
    terms.num_tensors = num_tensors_;
    terms.dim = dim_;
    terms.x_shape = common_shape_;
    if (one_shape_) {
      AddSizeOf(communicator, x, &terms);
      terms.uneven = ": for different rows use all_gatherv";
    }
    AddTerms(terms, agreement);
    agreement->EqualList("recvCounts", blocks_.counts(), blocks_.size())
        .EqualList("rdispls", blocks_.displs(), blocks_.size())
        .InPlainWords(method(), blocks_.row_elements());
  }

 private:
  const RowBlocks blocks_;
  const std::string type_;
  const int num_tensors_;
  const int dim_;
  const bool one_shape_;
  const Shape common_shape_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<AllGatherVParam>() {
  using P = AllGatherVParam;
  static const auto fields =
      StructFields<P>("AllGatherVParam").AddRank().AddCommunicator().Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllGatherVParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllGatherV", param, kEngineNames));
  return CheckDistributed("AllGatherV", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllGatherVParam& param) {
  return std::make_unique<AllGatherV>(param);
}
template struct ParamFunctions<AllGatherVParam>;

Status PlanGather(const PlainCall& call, const Communicator& group, PlanPointer* plan) {
  const Rows sizes =
      call.sizes ? *call.sizes : Rows(static_cast<size_t>(group.size()), call.x.rows());
  COLLOPS_RETURN_IF_ERROR(CheckSizes(call.name(), "sizes", sizes, group.size()));
  COLLOPS_RETURN_IF_ERROR(CheckOwnRows(call.name(), sizes, group.rank(), call.x));
  RowBlocks blocks;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(call.name(), call.x, sizes, &blocks));
  *plan = std::make_shared<GatherPlan>(call, std::move(blocks));
  return Ok();
}

}  // namespace collops

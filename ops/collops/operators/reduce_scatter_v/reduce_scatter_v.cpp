#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/reduction_dtypes.h"
#include "collops/operators/reduce_scatter_v/param.h"

namespace collops {
namespace {

enum Input { kX, kSendCounts, kSdispls, kRecvCount, kY, kNumInputs };

const OpSignature& GetSignature() {
  static const OpSignature signature = {
      "ReduceScatterV",
      {{"x", Role::kData, kReducible, 2, Extent::kAny},
       {"sendCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"sdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"recvCount", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kOne},
       {"y", Role::kLength, SetOf(DType::kFloat16), 1, Extent::kAny}}};
  return signature;
}

constexpr BlockWords kWords = {"ReduceScatterV", "slice", "sdispls", "sendCounts", "x's"};

// Checks that recvCount is this rank's element of sendCounts.
Status CheckOwnCount(const std::vector<int64_t>& send_counts,
                     const std::vector<int64_t>& recv_count, int rank) {
  if (send_counts.empty() || recv_count.empty()) return Ok();
  const int64_t sent = send_counts[static_cast<size_t>(rank)];
  COLLOPS_CHECK_ARG(sent == recv_count[0], ERROR_INVALID_PARAM, "ReduceScatterV: sendCounts[", rank,
                    "] is ", sent, " but this rank ", rank, " has recvCount ", recv_count[0],
                    ": they must be equal");
  return Ok();
}

// output.flat[:recvCount] = x.flat[sdispls[rank] : sdispls[rank] + recvCount] reduced over the
// ranks in rank order; the rest of the output is zero. Inputs: x, sendCounts, sdispls, recvCount,
// y.
class ReduceScatterV : public CollectiveOperation {
 public:
  explicit ReduceScatterV(const ReduceScatterVParam& param)
      : CollectiveOperation(GetSignature()),
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
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(GetSignature(), counts));
    return CheckOwnCount(counts[kSendCounts], recv_count, communicator().rank());
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
  const int root_;
  const ReduceOp op_;
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const ReduceScatterVParam& param) {
  return std::make_unique<ReduceScatterV>(param);
}
template Status CreateOperation(const ReduceScatterVParam& param,
                                std::unique_ptr<Operation>* operation);
template Status InferShape(const ReduceScatterVParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

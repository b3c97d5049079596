#include <algorithm>

#include "collops/operators/all_gather_v/param.h"
#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"

namespace collops {
namespace {

enum Input { kX, kSendCount, kRecvCounts, kRdispls, kY, kNumInputs };

const OpSignature& GetSignature() {
  static const OpSignature signature = {
      "AllGatherV",
      {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny},
       {"sendCount", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kOne},
       {"recvCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"rdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"y", Role::kLength, SetOf(DType::kFloat16), 1, Extent::kAny}}};
  return signature;
}

constexpr BlockWords kWords = {"AllGatherV", "block", "rdispls", "recvCounts", "the output's"};

// Checks that sendCount is this rank's element of recvCounts.
Status CheckOwnCount(const std::vector<int64_t>& send_count,
                     const std::vector<int64_t>& recv_counts, int rank) {
  if (send_count.empty() || recv_counts.empty()) return Ok();
  const int64_t received = recv_counts[static_cast<size_t>(rank)];
  COLLOPS_CHECK_ARG(received == send_count[0], ERROR_INVALID_PARAM, "AllGatherV: recvCounts[", rank,
                    "] is ", received, " but this rank ", rank, " has sendCount ", send_count[0],
                    ": they must be equal");
  return Ok();
}

// output.flat[rdispls[r] : rdispls[r] + recvCounts[r]] = x of rank r, for every rank r; every other
// element of the output is zero. Inputs: x, sendCount, recvCounts, rdispls, y.
class AllGatherV : public CollectiveOperation {
 public:
  explicit AllGatherV(const AllGatherVParam& param)
      : CollectiveOperation(GetSignature()), root_(param.rankRoot) {}

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
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(GetSignature(), plan.counts));
    const auto is_zero = [](int64_t count) { return count == 0; };
    COLLOPS_CHECK_ARG(
        recv_counts.empty() || !std::all_of(recv_counts.begin(), recv_counts.end(), is_zero),
        ERROR_INVALID_PARAM,
        "AllGatherV: all recvCounts are 0: at least one rank must send, or leave the call out");
    COLLOPS_RETURN_IF_ERROR(CheckOwnCount(send_count, recv_counts, communicator().rank()));
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
  const int root_;
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllGatherVParam& param) {
  return std::make_unique<AllGatherV>(param);
}
template Status CreateOperation(const AllGatherVParam& param,
                                std::unique_ptr<Operation>* operation);
template Status InferShape(const AllGatherVParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

#include "collops/operators/all_to_all_v/exchange_operation.h"
#include "collops/operators/all_to_all_v_v2/param.h"
#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"

namespace collops {
namespace {

enum Input { kX, kSendCounts, kSdispls, kRecvCounts, kRdispls, kY, kNumInputs };

const OpSignature& GetSignature() {
  static const OpSignature signature = {
      "AllToAllVV2",
      {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny},
       {"sendCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"sdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"recvCounts", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"rdispls", Role::kCounts, SetOf(DType::kInt64), 1, Extent::kRankSize},
       {"y", Role::kLength, SetOf(DType::kInt8), 1, Extent::kAny}}};
  return signature;
}

constexpr BlockWords kSlices = {"AllToAllVV2", "slice", "sdispls", "sendCounts", "x's"};
constexpr BlockWords kBlocks = {"AllToAllVV2", "block", "rdispls", "recvCounts", "the output's"};

// An output without gaps: its length is the sum of the blocks.
Status CheckSum(const std::vector<int64_t>& recv_counts, int64_t length) {
  if (recv_counts.empty()) return Ok();
  int64_t sum = 0;
  COLLOPS_CHECK_ARG(AddUp(recv_counts, &sum), ERROR_INVALID_TENSOR_DIM,
                    "AllToAllVV2: the sum of recvCounts does not fit into 64 bits");
  COLLOPS_CHECK_ARG(sum == length, ERROR_INVALID_TENSOR_DIM, "AllToAllVV2: recvCounts add up to ",
                    sum, " but y has length ", length, ": they must be equal");
  return Ok();
}

// All-to-all with counts and displacements as inputs: x, sendCounts, sdispls, recvCounts, rdispls,
// y. The output is [1, n], where n is the length of y and the sum of recvCounts.
class AllToAllVV2 : public ExchangeOperation {
 public:
  explicit AllToAllVV2(const AllToAllVV2Param& param)
      : ExchangeOperation(GetSignature(), param.rankRoot) {}

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override {
    const Counts& counts = plan.counts;
    return {counts[kSendCounts], counts[kSdispls], counts[kRecvCounts], counts[kRdispls]};
  }

  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->assign(1, OneRow(inputs[kX], inputs[kY].shape[0]));
    return Ok();
  }

  Status CheckCounts(const Plan& plan) const override {
    const ExchangeLists lists = ListsOf(plan);
    const RankBlocks blocks = {lists.recv_counts, lists.rdispls};
    const int64_t length = Numel(plan.outputs[0].shape);
    COLLOPS_RETURN_IF_ERROR(
        CheckEnds(kSlices, {lists.send_counts, lists.sdispls}, Numel(plan.inputs[kX].shape)));
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kBlocks, blocks, length));
    COLLOPS_RETURN_IF_ERROR(CheckSum(lists.recv_counts, length));
    COLLOPS_RETURN_IF_ERROR(CheckNotNegative(GetSignature(), plan.counts));
    return CheckDisjoint(kBlocks, blocks);
  }
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllToAllVV2Param& param) {
  return std::make_unique<AllToAllVV2>(param);
}
template Status CreateOperation(const AllToAllVV2Param& param,
                                std::unique_ptr<Operation>* operation);
template Status InferShape(const AllToAllVV2Param& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

#include <utility>

#include "collops/operators/all_to_all_v/exchange_operation.h"
#include "collops/operators/all_to_all_v/param.h"
#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

OpSignature MakeSignature() {
  return {"AllToAllV", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}};
}

constexpr BlockWords kSlices = {"AllToAllV", "slice", "sdispls", "sendCounts", "x's"};
constexpr BlockWords kBlocks = {"AllToAllV", "block", "rdispls", "recvCounts", "the output's"};

// The struct's lists.
struct Lists {
  std::vector<int64_t> send_counts;
  std::vector<int64_t> sdispls;
  std::vector<int64_t> recv_counts;
  std::vector<int64_t> rdispls;
};

// A plan's reference to the lists.
struct HeldLists : PlanDetails {
  explicit HeldLists(std::shared_ptr<const Lists> held) : lists(std::move(held)) {}
  std::shared_ptr<const Lists> lists;
};

// All-to-all with counts and displacements in the struct. Input: x; the output is [1, n], where n
// is the sum of recvCounts.
class AllToAllV : public ExchangeOperation {
 public:
  explicit AllToAllV(const AllToAllVParam& param)
      : ExchangeOperation(MakeSignature(), param.rankRoot),
        lists_(std::make_shared<Lists>(
            Lists{param.sendCounts, param.sdispls, param.recvCounts, param.rdispls})) {}

 protected:
  ExchangeLists ListsOf(const Plan& plan) const override {
    const Lists& lists = *static_cast<const HeldLists&>(*plan.details).lists;
    return {lists.send_counts, lists.sdispls, lists.recv_counts, lists.rdispls};
  }

  // The lists come from the struct, so they are checked completely here, without tensors.
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const RankBlocks blocks = {lists_->recv_counts, lists_->rdispls};
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kSlices, {lists_->send_counts, lists_->sdispls},
                                      Numel(inputs[kX].shape), ERROR_INVALID_PARAM));
    int64_t count = 0;
    COLLOPS_CHECK_ARG(AddUp(lists_->recv_counts, &count), ERROR_INVALID_PARAM,
                      "AllToAllV: the sum of recvCounts does not fit into 64 bits");
    COLLOPS_CHECK_ARG(count > 0, ERROR_INVALID_PARAM,
                      "AllToAllV: all recvCounts are 0: this rank must receive something; ",
                      "comm.all_to_allv allows ranks that do not");
    COLLOPS_RETURN_IF_ERROR(CheckEnds(kBlocks, blocks, count, ERROR_INVALID_PARAM));
    COLLOPS_RETURN_IF_ERROR(CheckDisjoint(kBlocks, blocks));
    outputs->assign(1, OneRow(inputs[kX], count));
    return Ok();
  }

  Status Complete(Plan* plan) const override {
    plan->details = std::make_unique<HeldLists>(lists_);
    return Ok();
  }

 private:
  // Shared with the plans, which may outlive the operation.
  const std::shared_ptr<const Lists> lists_;
};

}  // namespace

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllToAllVParam& param) {
  return std::make_unique<AllToAllV>(param);
}
template Status CreateOperation(const AllToAllVParam& param, std::unique_ptr<Operation>* operation);
template Status InferShape(const AllToAllVParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

#include "operators/all_to_all_v/all_to_all_v.h"

#include <utility>

#include "operators/all_to_all_v/param.h"
#include "operators/framework/blocks.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

const OpSignature& GetSignature() {
  static const OpSignature signature = {
      "AllToAllV", {{"x", Role::kData, kExchanged, kAnyNumDims, Extent::kAny}}};
  return signature;
}

constexpr BlockWords kSlices = {"AllToAllV", "slice", "sdispls", "sendCounts", "x's"};
constexpr BlockWords kBlocks = {"AllToAllV", "block", "rdispls", "recvCounts", "the output's"};

}  // namespace

struct AllToAllV::Lists {
  std::vector<int64_t> send_counts;
  std::vector<int64_t> sdispls;
  std::vector<int64_t> recv_counts;
  std::vector<int64_t> rdispls;

  // A plan's reference to the lists.
  struct Held : PlanDetails {
    explicit Held(std::shared_ptr<const Lists> held) : lists(std::move(held)) {}
    std::shared_ptr<const Lists> lists;
  };
};

AllToAllV::AllToAllV(std::shared_ptr<Communicator> communicator, const AllToAllVParam& param)
    : ExchangeOperation(GetSignature(), std::move(communicator), param.rankRoot),
      lists_(std::make_shared<Lists>(
          Lists{param.sendCounts, param.sdispls, param.recvCounts, param.rdispls})) {}

ExchangeLists AllToAllV::ListsOf(const Plan& plan) const {
  const Lists& lists = *static_cast<const Lists::Held&>(*plan.details).lists;
  return {lists.send_counts, lists.sdispls, lists.recv_counts, lists.rdispls};
}

// The lists come from the struct, so they are checked completely here, without tensors.
Status AllToAllV::DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                                  std::vector<TensorDesc>* outputs) const {
  const RankBlocks blocks = {lists_->recv_counts, lists_->rdispls};
  RETURN_IF_ERROR(CheckEnds(kSlices, {lists_->send_counts, lists_->sdispls},
                            Numel(inputs[kX].shape), ERROR_INVALID_PARAM));
  int64_t count = 0;
  CHECK_ARG(AddUp(lists_->recv_counts, &count), ERROR_INVALID_PARAM,
            "AllToAllV: the sum of recvCounts does not fit into 64 bits");
  CHECK_ARG(count > 0, ERROR_INVALID_PARAM,
            "AllToAllV: all recvCounts are 0: this rank must receive something; ",
            "comm.all_to_allv takes ranks that do not");
  RETURN_IF_ERROR(CheckEnds(kBlocks, blocks, count, ERROR_INVALID_PARAM));
  RETURN_IF_ERROR(CheckDisjoint(kBlocks, blocks));
  outputs->assign(1, OneRow(inputs[kX], count));
  return Ok();
}

Status AllToAllV::Complete(Plan* plan) const {
  plan->details = std::make_unique<Lists::Held>(lists_);
  return Ok();
}

Status CreateOperation(const AllToAllVParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("AllToAllV", param, operation, &communicator));
  *operation = std::make_unique<AllToAllV>(std::move(communicator), param);
  return Ok();
}

Status InferShape(const AllToAllVParam& param, int rank_size, const std::vector<TensorDesc>& inputs,
                  std::vector<TensorDesc>* outputs) {
  return InferShapeOf(AllToAllV(nullptr, param), param, rank_size, inputs, outputs);
}

}  // namespace collops

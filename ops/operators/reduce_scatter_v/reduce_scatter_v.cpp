#include "operators/reduce_scatter_v/reduce_scatter_v.h"

#include <utility>

#include "operators/framework/blocks.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"
#include "operators/reduce_scatter_v/param.h"

namespace collops {
namespace {

enum Input { kX, kSendCounts, kSdispls, kRecvCount, kY, kNumInputs };

constexpr DTypeSet kPayload =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64);

const OpSignature& GetSignature() {
  static const OpSignature signature = {
      "ReduceScatterV",
      {{"x", Role::kData, kPayload, 2, Extent::kAny},
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
  CHECK_ARG(sent == recv_count[0], ERROR_INVALID_PARAM, "ReduceScatterV: sendCounts[", rank,
            "] is ", sent, " but this rank ", rank, " has recvCount ", recv_count[0],
            ": they must be equal");
  return Ok();
}

}  // namespace

ReduceScatterV::ReduceScatterV(std::shared_ptr<Communicator> communicator, int root, ReduceOp op)
    : CollectiveOperation(GetSignature(), std::move(communicator)), root_(root), op_(op) {}

Status ReduceScatterV::DescribeOutputs(const RankPlace& /*place*/,
                                       const std::vector<TensorDesc>& inputs,
                                       std::vector<TensorDesc>* outputs) const {
  outputs->assign(1, inputs[kX]);
  outputs->front().shape.dims[0] = inputs[kY].shape[0];
  return Ok();
}

Status ReduceScatterV::CheckCounts(const Plan& plan) const {
  const Counts& counts = plan.counts;
  const std::vector<int64_t>& recv_count = counts[kRecvCount];
  const int64_t output_count = Numel(plan.outputs[0].shape);
  RETURN_IF_ERROR(
      CheckEnds(kWords, {counts[kSendCounts], counts[kSdispls]}, Numel(plan.inputs[kX].shape)));
  CHECK_ARG(recv_count.empty() || recv_count[0] <= output_count, ERROR_INVALID_TENSOR_DIM,
            "ReduceScatterV: recvCount ", recv_count[0], " exceeds the output's ", output_count,
            " elements: ask for more rows with y");
  RETURN_IF_ERROR(CheckNotNegative(GetSignature(), counts));
  return CheckOwnCount(counts[kSendCounts], recv_count, communicator().rank());
}

Status ReduceScatterV::CheckSupport(DType dtype) const {
  return communicator().Supports(Primitive::kReduce, dtype, op_);
}

void ReduceScatterV::AgreeOn(const Plan& plan, Agreement* agreement) const {
  CollectiveTerms terms;
  terms.dtype = collops::Name(plan.inputs[kX].dtype);
  terms.reduction = collops::Name(op_);
  terms.root = root_;
  terms.x_shape = plan.inputs[kX].shape;
  AddTerms(terms, agreement);
  agreement->EqualList("sendCounts", plan.counts[kSendCounts].data(), communicator().size())
      .EqualList("sdispls", plan.counts[kSdispls].data(), communicator().size());
}

Status ReduceScatterV::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                           void* stream) {
  ReduceScatterVCall call;
  call.agreement = &*plan.agreement;
  call.dtype = plan.inputs[kX].dtype;
  call.op = op_;
  call.x = pack.inputs[kX].data;
  call.output = pack.outputs[0].data;
  call.output_count = Numel(plan.outputs[0].shape);
  call.send_counts = plan.counts[kSendCounts].data();
  call.sdispls = plan.counts[kSdispls].data();
  call.stream = stream;
  call.keep = KeepOf(plan);
  return communicator().ReduceScatterV(call);
}

Status CreateOperation(const ReduceScatterVParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("ReduceScatterV", param, operation, &communicator));
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("ReduceScatterV", param.reduceType, &op));
  *operation = std::make_unique<ReduceScatterV>(std::move(communicator), param.rankRoot, op);
  return Ok();
}

Status InferShape(const ReduceScatterVParam& param, int rank_size,
                  const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs) {
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("ReduceScatterV", param.reduceType, &op));
  return InferShapeOf(ReduceScatterV(nullptr, param.rankRoot, op), param, rank_size, inputs,
                      outputs);
}

}  // namespace collops

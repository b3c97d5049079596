#include "operators/reduce_scatter/reduce_scatter.h"

#include <utility>

#include "operators/framework/even_blocks.h"
#include "operators/framework/find_communicator.h"
#include "operators/framework/infer_shape.h"
#include "operators/framework/reduction_dtypes.h"
#include "operators/reduce_scatter/param.h"

namespace collops {
namespace {

enum Input { kX, kNumInputs };

// ATB's ReduceScatter, unlike its AllReduce, takes no int64 on either of its backends.
OpSignature MakeSignature(const std::string& backend) {
  const bool is_atb = backend == "hccl" || backend == "lccl";
  const DTypeSet payload = is_atb ? kReducible & ~SetOf(DType::kInt64) : kReducible;
  return {"ReduceScatter", {{"x", Role::kData, payload, kAnyNumDims, Extent::kAny}}};
}

}  // namespace

ReduceScatter::ReduceScatter(std::shared_ptr<Communicator> communicator, int root, ReduceOp op,
                             std::string backend)
    : CollectiveOperation(MakeSignature(backend), std::move(communicator)),
      root_(root),
      op_(op),
      backend_(std::move(backend)) {}

Status ReduceScatter::DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                                      std::vector<TensorDesc>* outputs) const {
  const int size = place.rank_size;
  const int64_t rows = inputs[kX].shape[0];
  RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[kX].dtype));
  CHECK_ARG(rows % size == 0, ERROR_INVALID_TENSOR_DIM, "ReduceScatter: x has ", rows,
            " rows, which ", size, " ranks cannot share out evenly: pad x to ",
            rows + size - rows % size, " rows, or use ReduceScatterV");
  outputs->assign(1, inputs[kX]);
  outputs->front().shape.dims[0] = rows / size;
  return Ok();
}

Status ReduceScatter::CheckSupport(DType dtype) const {
  RETURN_IF_ERROR(communicator().Supports(Primitive::kComposed, dtype, op_));
  return communicator().Supports(Primitive::kReduce, dtype, op_);
}

Status ReduceScatter::Complete(Plan* plan) const {
  plan->details =
      std::make_unique<EvenBlocks>(communicator().size(), Numel(plan->outputs[0].shape));
  return Ok();
}

void ReduceScatter::AgreeOn(const Plan& plan, Agreement* agreement) const {
  CollectiveTerms terms;
  terms.dtype = collops::Name(plan.inputs[kX].dtype);
  terms.reduction = collops::Name(op_);
  terms.root = root_;
  terms.x_shape = plan.inputs[kX].shape;
  AddTerms(terms, agreement);
  const EvenBlocks& blocks = BlocksOf(plan);
  agreement->EqualList("sendCounts", blocks.counts.data(), communicator().size())
      .EqualList("sdispls", blocks.displs.data(), communicator().size());
}

Status ReduceScatter::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                          void* stream) {
  const EvenBlocks& blocks = BlocksOf(plan);
  ReduceScatterVCall call;
  call.agreement = &*plan.agreement;
  call.dtype = plan.inputs[kX].dtype;
  call.op = op_;
  call.x = pack.inputs[kX].data;
  call.output = pack.outputs[0].data;
  call.output_count = blocks.counts[0];
  call.send_counts = blocks.counts.data();
  call.sdispls = blocks.displs.data();
  call.stream = stream;
  call.keep = KeepOf(plan);
  return communicator().ReduceScatterV(call);
}

Status CreateOperation(const ReduceScatterParam& param, std::unique_ptr<Operation>* operation) {
  std::shared_ptr<Communicator> communicator;
  RETURN_IF_ERROR(FindCommunicator("ReduceScatter", param, operation, &communicator));
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("ReduceScatter", param.reduceType, &op));
  *operation =
      std::make_unique<ReduceScatter>(std::move(communicator), param.rankRoot, op, param.backend);
  return Ok();
}

Status InferShape(const ReduceScatterParam& param, int rank_size,
                  const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs) {
  ReduceOp op = ReduceOp::kSum;
  RETURN_IF_ERROR(ParseReduceType("ReduceScatter", param.reduceType, &op));
  return InferShapeOf(ReduceScatter(nullptr, param.rankRoot, op, param.backend), param, rank_size,
                      inputs, outputs);
}

}  // namespace collops

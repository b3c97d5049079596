#include "collops/operators/reduce_scatter_v/plain.h"

#include <algorithm>
#include <utility>

namespace collops {
namespace {

bool HasEqualSizes(const Rows& rows) {
  return std::all_of(rows.begin(), rows.end(), [&](int64_t size) { return size == rows[0]; });
}

class ScatterPlan : public PlanOf<ReduceScatterVCall> {
 public:
  // `pairs`: the blocks of complex numbers, in real ones.
  ScatterPlan(const ScatterSpec& spec, RowBlocks blocks, RowBlocks pairs)
      : PlanOf(spec.method, spec.operation, &Communicator::ReduceScatterV),
        blocks_(std::move(blocks)),
        pairs_(std::move(pairs)),
        dim_(spec.x.dim),
        root_(static_cast<int>(spec.root)),
        op_(spec.op),
        even_(spec.share == ScatterSpec::kRoot || HasEqualSizes(blocks_.rows())) {}

  Rows rows() const override { return blocks_.rows(); }

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    const DType dtype = tensors.x.view.desc.dtype;
    return static_cast<uint64_t>(communicator.ScratchBytes(
        ReducedAs(dtype), op_, Parts(dtype).count(communicator.rank()), communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, ReduceScatterVCall* call) const override {
    const int rank = communicator.rank();
    const int64_t own = blocks_.count(rank);
    COLLOPS_RETURN_IF_ERROR(
        CheckPair(tensors, method(), blocks_.total(), own, communicator.device()));
    // No other rank reads this rank's block of its x, and the blocks lie apart.
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), blocks_.begin(rank),
                                       ", or pass this rank's own block of x as out"));
    const DType dtype = tensors.x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(dtype, op_, method()));
    const RowBlocks& parts = Parts(dtype);
    call->dtype = ReducedAs(dtype);
    call->op = op_;
    call->x = tensors.x.view.data;
    call->output = tensors.out.view.data;
    call->output_count = parts.count(rank);
    call->send_counts = parts.counts();
    call->sdispls = parts.displs();
    CollectiveTerms terms;
    terms.dtype = Name(dtype);
    terms.reduction = Name(op_);
    terms.root = root_;
    terms.dim = dim_;
    AddSizeOf(communicator, tensors.x, &terms);
    AddTerms(terms, agreement);
    agreement->EqualList("sendCounts", blocks_.counts(), blocks_.size())
        .EqualList("sdispls", blocks_.displs(), blocks_.size())
        .InPlainWords(method(), blocks_.row_elements());
    return communicator.Supports(even_ ? Primitive::kEvenReduce : Primitive::kReduce, call->dtype,
                                 op_);
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

Status ShareOut(const ScatterSpec& spec, int rank_size, Rows* rows) {
  const int64_t have = spec.x.rows();
  if (spec.share == ScatterSpec::kRoot) {
    COLLOPS_RETURN_IF_ERROR(CheckRoot(spec.method, spec.root, rank_size));
    rows->assign(static_cast<size_t>(rank_size), 0);
    (*rows)[static_cast<size_t>(spec.root)] = have;
    return Ok();
  }
  if (spec.share == ScatterSpec::kEqual) {
    const int64_t more = have % rank_size;
    COLLOPS_CHECK_ARG(more == 0, ERROR_INVALID_TENSOR_DIM, spec.method, ": x has ", have,
                      " rows, which do not divide evenly among ", rank_size, " ranks: pad x to ",
                      have + rank_size - more, " rows, or use reduce_scatterv");
  }
  *rows = spec.sizes ? *spec.sizes : SplitEvenly(have, rank_size);
  return CheckSizes(spec.method, "sizes", *rows, rank_size);
}

}  // namespace

Status PlanScatter(const ScatterSpec& spec, int rank_size, std::shared_ptr<const PlainPlan>* plan) {
  Rows rows;
  COLLOPS_RETURN_IF_ERROR(ShareOut(spec, rank_size, &rows));
  RowShape x = spec.x;
  COLLOPS_RETURN_IF_ERROR(CheckSum(spec.method, "sizes", rows, x));
  RowBlocks blocks, pairs;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(spec.method, x, rows, &blocks));
  x.unit = 2;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(spec.method, x, rows, &pairs));
  *plan = std::make_shared<ScatterPlan>(spec, std::move(blocks), std::move(pairs));
  return Ok();
}

}  // namespace collops

#include "collops/operators/all_gather_v/plain.h"

#include <utility>

namespace collops {
namespace {

class GatherPlan : public PlanOf<AllGatherVCall> {
 public:
  GatherPlan(const GatherSpec& spec, RowBlocks blocks)
      : PlanOf(spec.method, spec.operation, &Communicator::AllGatherV),
        blocks_(std::move(blocks)),
        type_(spec.x.type),
        num_tensors_(spec.num_tensors),
        dim_(spec.x.dim),
        one_shape_(spec.one_shape),
        common_shape_(ShapeBesideRows(spec.x)) {}

  Rows rows() const override { return blocks_.rows(); }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, AllGatherVCall* call) const override {
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
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(call->dtype) : type_.c_str();
    terms.num_tensors = num_tensors_;
    terms.dim = dim_;
    terms.x_shape = common_shape_;
    if (one_shape_) {
      AddSizeOf(communicator, tensors.x, &terms);
      terms.uneven = ": for different rows use all_gatherv";
    }
    AddTerms(terms, agreement);
    agreement->EqualList("recvCounts", blocks_.counts(), blocks_.size())
        .EqualList("rdispls", blocks_.displs(), blocks_.size())
        .InPlainWords(method(), blocks_.row_elements());
    return communicator.Supports(Primitive::kGather, call->dtype, ReduceOp::kSum);
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

Status PlanGather(const GatherSpec& spec, int rank, int rank_size,
                  std::shared_ptr<const PlainPlan>* plan) {
  const RowShape& x = spec.x;
  COLLOPS_RETURN_IF_ERROR(CheckSizes(spec.method, "sizes", spec.sizes, rank_size));
  COLLOPS_RETURN_IF_ERROR(CheckOwnRows(spec.method, spec.sizes, rank, x));
  RowBlocks blocks;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(spec.method, x, spec.sizes, &blocks));
  *plan = std::make_shared<GatherPlan>(spec, std::move(blocks));
  return Ok();
}

}  // namespace collops

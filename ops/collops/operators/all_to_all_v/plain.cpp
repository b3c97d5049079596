#include "collops/operators/all_to_all_v/plain.h"

#include <optional>
#include <utility>

namespace collops {
namespace {

class ExchangePlan : public PlanOf<ExchangeVCall> {
 public:
  ExchangePlan(const ExchangeSpec& spec, RowBlocks sends, RowBlocks receives)
      : PlanOf(spec.method, spec.operation, &Communicator::ExchangeV),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        type_(spec.x.type),
        shape_(ShapeBesideRows(spec.x)),
        root_(static_cast<int>(spec.root)),
        sizes_(spec.sizes) {}

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, ExchangeVCall* call) const override {
    COLLOPS_RETURN_IF_ERROR(
        CheckPair(tensors, method(), sends_.total(), receives_.total(), communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), std::nullopt, ""));
    call->dtype = tensors.x.view.desc.dtype;
    call->x = tensors.x.view.data;
    call->send_counts = sends_.counts();
    call->sdispls = sends_.displs();
    call->output = tensors.out.view.data;
    call->recv_counts = receives_.counts();
    call->rdispls = receives_.displs();
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(call->dtype) : type_.c_str();
    terms.root = root_;
    terms.x_shape = shape_;
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
    if (sizes_.empty()) {
      agreement->Pairwise("send_sizes", sends_.rows().data(), "recv_sizes", receives_.rows().data(),
                          communicator.rank(), communicator.size());
    } else {
      agreement->EqualList("sizes", sizes_.data(), communicator.size());
    }
    return communicator.Supports(Primitive::kExchange, call->dtype, ReduceOp::kSum);
  }

 private:
  const RowBlocks sends_;
  const RowBlocks receives_;
  const std::string type_;
  const Shape shape_;
  const int root_;
  const Rows sizes_;
};

// What this rank sends and receives, once all of it is checked.
Status ShareOut(const ExchangeSpec& spec, int rank, int rank_size, Rows* sends, Rows* receives) {
  const auto own = static_cast<size_t>(rank);
  if (spec.share == ExchangeSpec::kEach) {
    COLLOPS_RETURN_IF_ERROR(CheckSizes(spec.method, "send_sizes", spec.sends, rank_size));
    COLLOPS_RETURN_IF_ERROR(CheckSum(spec.method, "send_sizes", spec.sends, spec.x));
    COLLOPS_RETURN_IF_ERROR(CheckSizes(spec.method, "recv_sizes", spec.receives, rank_size));
    COLLOPS_CHECK_ARG(spec.sends[own] == spec.receives[own], ERROR_INVALID_PARAM, spec.method,
                      ": send_sizes[", rank, "] is ", spec.sends[own], " but recv_sizes[", rank,
                      "] is ", spec.receives[own], ": what this rank ", rank,
                      " sends to itself must be equal");
    *sends = spec.sends;
    *receives = spec.receives;
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CheckRoot(spec.method, spec.root, rank_size));
  COLLOPS_RETURN_IF_ERROR(CheckSizes(spec.method, "sizes", spec.sizes, rank_size));
  const bool gathers = spec.share == ExchangeSpec::kToRoot;
  if (gathers) COLLOPS_RETURN_IF_ERROR(CheckOwnRows(spec.method, spec.sizes, rank, spec.x));
  const Rows none(static_cast<size_t>(rank_size), 0);
  Rows at_root = none;
  at_root[static_cast<size_t>(spec.root)] = spec.sizes[own];
  const Rows of_root = rank == spec.root ? spec.sizes : none;
  *sends = gathers ? at_root : of_root;
  *receives = gathers ? of_root : at_root;
  return Ok();
}

}  // namespace

Status PlanExchange(const ExchangeSpec& spec, int rank, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan) {
  Rows send_rows, receive_rows;
  COLLOPS_RETURN_IF_ERROR(ShareOut(spec, rank, rank_size, &send_rows, &receive_rows));
  RowBlocks sends, receives;
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(spec.method, spec.x, send_rows, &sends));
  COLLOPS_RETURN_IF_ERROR(RowBlocks::Make(spec.method, spec.x, receive_rows, &receives));
  *plan = std::make_shared<ExchangePlan>(spec, std::move(sends), std::move(receives));
  return Ok();
}

}  // namespace collops

#include "operators/all_to_all_v/plain.h"

#include <utility>

namespace collops {
namespace {

class ExchangePlan : public PlanOf<ExchangeVCall> {
 public:
  ExchangePlan(const ExchangeSpec& spec, RowBlocks sends, RowBlocks receives)
      : PlanOf(spec.method, spec.operation, &Communicator::ExchangeV),
        sends_(std::move(sends)),
        receives_(std::move(receives)),
        type_(spec.row.type),
        shape_(ShapeBesideRows(spec.row)),
        root_(spec.root),
        sizes_(spec.sizes) {}

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, ExchangeVCall* call) const override {
    RETURN_IF_ERROR(CheckPair(tensors, method(), sends_.total(), receives_.total()));
    RETURN_IF_ERROR(CheckApart(tensors, method(), -1, ""));
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

}  // namespace

Status PlanExchange(const ExchangeSpec& spec, int rank_size,
                    std::shared_ptr<const PlainPlan>* plan) {
  for (const Rows* rows : {&spec.sends, &spec.receives}) {
    CHECK_ARG(rows->size() == static_cast<size_t>(rank_size), ERROR_INVALID_PARAM, spec.method,
              ": ", rows->size(), " sizes for ", rank_size, " ranks");
  }
  RowBlocks sends, receives;
  RETURN_IF_ERROR(RowBlocks::Make(spec.method, spec.row, spec.sends, &sends));
  RETURN_IF_ERROR(RowBlocks::Make(spec.method, spec.row, spec.receives, &receives));
  *plan = std::make_shared<ExchangePlan>(spec, std::move(sends), std::move(receives));
  return Ok();
}

}  // namespace collops

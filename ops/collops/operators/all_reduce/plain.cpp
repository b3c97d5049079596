#include "collops/operators/all_reduce/plain.h"

#include "collops/comm/even_split.h"
#include "collops/operators/framework/collective_terms.h"

namespace collops {
namespace {

class AllReducePlan : public PlanOf<AllReduceCall> {
 public:
  explicit AllReducePlan(ReduceOp op)
      : PlanOf("all_reduce", "AllReduce", &Communicator::AllReduce), op_(op) {}

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    return static_cast<uint64_t>(AllReduceScratch(communicator, tensors.x.view.desc.dtype, op_,
                                                  tensors.x.numel, communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, AllReduceCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckPair(tensors, method(), x.numel, x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), 0, ", or pass x itself as out"));
    call->dtype = x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(call->dtype, op_, method()));
    call->op = op_;
    call->x = x.view.data;
    call->count = x.numel;
    call->output = tensors.out.view.data;
    CollectiveTerms terms;
    terms.dtype = Name(call->dtype);
    terms.reduction = Name(op_);
    terms.x_shape = ComparedShape(x);
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
    return communicator.Supports(Primitive::kEvenReduce, call->dtype, op_);
  }

 private:
  const ReduceOp op_;
};

}  // namespace

std::shared_ptr<const PlainPlan> PlanAllReduce(ReduceOp op) {
  return std::make_shared<AllReducePlan>(op);
}

}  // namespace collops

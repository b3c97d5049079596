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
    const DType dtype = tensors.x.view.desc.dtype;
    return static_cast<uint64_t>(AllReduceScratch(communicator, ReducedAs(dtype), op_,
                                                  tensors.x.numel * PartsOf(dtype),
                                                  communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, AllReduceCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckPair(tensors, method(), x.numel, x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), 0, ", or pass x itself as out"));
    const DType dtype = x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(dtype, op_, method()));
    call->dtype = ReducedAs(dtype);
    call->op = op_;
    call->x = x.view.data;
    call->count = x.numel * PartsOf(dtype);
    call->output = tensors.out.view.data;
    CollectiveTerms terms;
    terms.dtype = Name(dtype);
    terms.reduction = Name(op_);
    AddSizeOf(communicator, x, &terms);
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

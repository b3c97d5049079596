#include "collops/operators/broadcast/plain.h"

#include "collops/operators/framework/collective_terms.h"

namespace collops {
namespace {

constexpr const char* kMethod = "broadcast";

class BroadcastPlan : public PlanOf<BroadcastCall> {
 public:
  BroadcastPlan(int root, const std::string& type)
      : PlanOf(kMethod, "Broadcast", &Communicator::Broadcast), root_(root), type_(type) {}

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 Agreement* agreement, BroadcastCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckWhole(x, method(), "x", x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckWritable(x, method(), "x"));
    call->dtype = x.view.desc.dtype;
    call->root = root_;
    call->data = x.view.data;
    call->count = x.numel;
    CollectiveTerms terms;
    terms.dtype = type_.empty() ? Name(call->dtype) : type_.c_str();
    terms.root = root_;
    AddSizeOf(communicator, x, &terms);
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
    return communicator.Supports(Primitive::kGather, call->dtype, ReduceOp::kSum);
  }

 private:
  const int root_;
  const std::string type_;
};

}  // namespace

Status PlanBroadcast(int64_t root, const std::string& type, int rank_size,
                     std::shared_ptr<const PlainPlan>* plan) {
  COLLOPS_RETURN_IF_ERROR(CheckRoot(kMethod, root, rank_size));
  *plan = std::make_shared<BroadcastPlan>(static_cast<int>(root), type);
  return Ok();
}

}  // namespace collops

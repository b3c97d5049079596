#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/core/operation.h"
#include "collops/operators/framework/collective_terms.h"
#include "collops/operators/framework/tensor_check.h"

namespace collops {

// The part of a plan that only one operator uses.
struct PlanDetails {
  virtual ~PlanDetails() = default;
};

// One planned call: the tensors it was planned for, and what Run needs besides the tensors. Not
// changed after it is stored, because calls that a device still runs share it.
struct Plan : std::enable_shared_from_this<Plan> {
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
  TensorBytes bytes;
  Counts counts;            // copied: Run does not read the caller's counts
  std::vector<Range> gaps;  // elements of the output that no block covers, if zeroed here
  std::unique_ptr<PlanDetails> details;
  std::optional<Agreement> agreement;  // with the other ranks; its lists are owned by the plan
  uint64_t workspace_bytes = 0;
};

// The two phases of collectives: GetWorkspaceSize checks and plans; Execute finds the plan, checks
// what may differ between calls, and runs. An operator adds its signature and the functions below
// `protected`. Stores the last kMaxPlans plans, most recently used first, and keeps the
// communicator alive; a dropped plan lives on while a device runs a call of it. Not thread-safe;
// waits only in Execute and Refuse.
class CollectiveOperation : public Operation {
 public:
  static constexpr size_t kMaxPlans = 8;

  explicit CollectiveOperation(OpSignature signature);

  // Gives it its communicator, without which only InferShapeAt() may be called. `why_not`: an error
  // that only the second phase returns, or Ok.
  void Join(std::shared_ptr<Communicator> communicator, Status why_not = Ok()) {
    communicator_ = std::move(communicator);
    why_not_ = std::move(why_not);
  }

  const char* Name() const override { return signature_.name; }
  int NumInputs() const override { return static_cast<int>(signature_.inputs.size()); }
  int NumOutputs() const override { return static_cast<int>(signature_.outputs.size()); }

  Status InferShape(const std::vector<TensorDesc>& inputs,
                    std::vector<TensorDesc>* outputs) const override;
  // InferShape() of an operation that may have no communicator yet.
  Status InferShapeAt(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                      std::vector<TensorDesc>* outputs) const;
  Status GetWorkspaceSize(const VariantPack& pack, uint64_t* bytes) override;
  Status Execute(const VariantPack& pack, void* workspace, uint64_t workspace_bytes,
                 void* stream) override;
  Status Refuse(const Status& reason) override;

  Communicator& communicator() const { return *communicator_; }
  const OpSignature& signature() const { return signature_; }

 protected:
  // A call of the plan, in which the operator still sets the tensors. Its `keep` is the plan on a
  // device; null on the CPU, where a call is complete on return.
  template <typename Call>
  Call CallOf(const Plan& plan, void* stream) const {
    Call call;
    call.agreement = &*plan.agreement;
    call.dtype = plan.inputs[0].dtype;
    call.stream = stream;
    if (communicator_->device().kind != DeviceKind::kCpu) call.keep = plan.shared_from_this();
    return call;
  }

  // What the ranks agree on in calls of all operators with a root.
  static CollectiveTerms TermsOf(const Plan& plan, int root) {
    CollectiveTerms terms;
    terms.dtype = collops::Name(plan.inputs[0].dtype);
    terms.root = root;
    return terms;
  }

  // The outputs for inputs that have passed CheckInputs, or an error of their shapes. Must not use
  // the communicator, which may be null.
  virtual Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                                 std::vector<TensorDesc>* outputs) const = 0;

  // Checks the plan's counts against its shapes; a list that could not be read is empty.
  virtual Status CheckCounts(const Plan& plan) const;

  // Whether the communicator can run the call.
  virtual Status CheckSupport(DType dtype) const = 0;

  // Adds what the operator computes once per shape.
  virtual Status Complete(Plan* plan) const;

  // Adds what the ranks must agree on.
  virtual void AgreeOn(const Plan& plan, Agreement* agreement) const = 0;

  // Makes the one call of the communicator.
  virtual Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) = 0;

 private:
  Status Check(const VariantPack& pack, Plan* plan) const;
  Status CheckExecute(const VariantPack& pack, const void* workspace, uint64_t workspace_bytes,
                      const Plan** plan);
  Status PlanCall(const VariantPack& pack);
  const Plan* FindPlan(const VariantPack& pack);
  Status ExplainNoPlan(const VariantPack& pack) const;
  void Keep(Plan plan);
  bool IsRepeated(const VariantPack& pack) const;

  const OpSignature signature_;
  Status why_not_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<const Plan>> plans_;
  Status first_phase_;  // of the last GetWorkspaceSize
  // The tensors of the last call that passed all checks, and its plan; null: none. An inference
  // loop calls with the same tensors again, and then only the counts are compared.
  VariantPack checked_;
  const Plan* checked_plan_ = nullptr;
};

}  // namespace collops

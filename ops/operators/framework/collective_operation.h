#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "core/operation.h"
#include "operators/framework/collective_terms.h"
#include "operators/framework/signature.h"

namespace collops {

// What one operator alone keeps in a plan.
struct PlanDetails {
  virtual ~PlanDetails() = default;
};

// One planned call: what it was planned for, and what a run needs that the tensors do not say. It
// does not change once it is kept, and is shared with calls that a device still runs.
struct Plan : std::enable_shared_from_this<Plan> {
  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
  TensorBytes bytes;
  Counts counts;            // our copy: a run reads no count of the caller's
  std::vector<Range> gaps;  // elements of the output that no rank fills, where peers do not see it
  std::unique_ptr<PlanDetails> details;
  std::optional<Agreement> agreement;  // with the other ranks; its lists are the plan's
  uint64_t workspace_bytes = 0;
};

// The two phases that collectives share: GetWorkspaceSize checks and plans, Execute finds the plan,
// checks what may differ between calls, and runs. An operator adds its signature and the functions
// below `protected`. Keeps the last kMaxPlans plans, most recently used first, and the communicator
// alive; a plan that falls out lives on while a device runs a call of it. Not thread-safe; waits
// only in Execute and Refuse.
class CollectiveOperation : public Operation {
 public:
  static constexpr size_t kMaxPlans = 8;

  CollectiveOperation(Signature signature, std::shared_ptr<Communicator> communicator);

  const char* Name() const override { return signature_.name; }
  int NumInputs() const override { return static_cast<int>(signature_.inputs.size()); }
  int NumOutputs() const override { return static_cast<int>(signature_.outputs.size()); }

  Status InferShape(const std::vector<TensorDesc>& inputs,
                    std::vector<TensorDesc>* outputs) const override;
  // The same of an operation that may have no communicator.
  Status InferShapeAt(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                      std::vector<TensorDesc>* outputs) const;
  Status GetWorkspaceSize(const VariantPack& pack, uint64_t* bytes) override;
  Status Execute(const VariantPack& pack, void* workspace, uint64_t workspace_bytes,
                 void* stream) override;
  Status Refuse(const Status& reason) override;

  Communicator& communicator() const { return *communicator_; }

 protected:
  // What a call of the plan carries as its `keep`: the plan on a device, and nothing on the CPU,
  // where the call is complete on return.
  Kept KeepOf(const Plan& plan) const {
    return communicator_->device().kind == DeviceKind::kCpu ? nullptr : plan.shared_from_this();
  }

  // The outputs of inputs that have passed CheckInputs, or what else is wrong with their shapes.
  // Asks no communicator: there may be none.
  virtual Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                                 std::vector<TensorDesc>* outputs) const = 0;

  // The plan's counts against its shapes; a list that could not be read is empty.
  virtual Status CheckCounts(const Plan& plan) const;

  // Whether the communicator can run the call.
  virtual Status CheckSupport(DType dtype) const = 0;

  // Adds what the operator computes once per shape.
  virtual Status Complete(Plan* plan) const;

  // What the ranks must agree on.
  virtual void AgreeOn(const Plan& plan, Agreement* agreement) const = 0;

  // The one call of the communicator.
  virtual Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) = 0;

 private:
  Status Check(const VariantPack& pack, Plan* plan) const;
  Status CheckExecute(const VariantPack& pack, const void* workspace, uint64_t workspace_bytes,
                      const Plan** plan);
  const Plan* FindPlan(const VariantPack& pack);
  Status ExplainNoPlan(const VariantPack& pack) const;
  void Keep(Plan plan);

  const Signature signature_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<std::shared_ptr<const Plan>> plans_;
};

}  // namespace collops

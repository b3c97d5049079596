#include "collops/operators/framework/collective_operation.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace collops {
namespace {

// By its names in ATB's style, in C++ and in Python.
constexpr const char* kRunFirstPhase =
    "run the first phase (Setup, GetWorkspaceSize or get_workspace_size)";

bool SameDescs(const std::vector<TensorDesc>& descs, const std::vector<TensorView>& tensors) {
  if (tensors.size() != descs.size()) return false;
  for (size_t i = 0; i < descs.size(); ++i) {
    if (tensors[i].desc != descs[i]) return false;
  }
  return true;
}

bool SameDescs(const Plan& plan, const VariantPack& pack) {
  return SameDescs(plan.inputs, pack.inputs) && SameDescs(plan.outputs, pack.outputs);
}

std::vector<int64_t> Bytes(const std::vector<TensorDesc>& descs) {
  std::vector<int64_t> bytes;
  for (const TensorDesc& desc : descs) bytes.push_back(NumBytes(desc));
  return bytes;
}

// By memcpy, because the address of the caller's counts may be unaligned.
bool Equal(const std::vector<int64_t>& counts, const void* caller_counts) {
  const char* next = static_cast<const char*>(caller_counts);
  for (const int64_t known : counts) {
    int64_t count = 0;
    std::memcpy(&count, next, sizeof(count));
    if (count != known) return false;
    next += sizeof(count);
  }
  return true;
}

// Compares the bytes first, which is faster than field by field. Padding may differ between equal
// tensors, so the fields decide.
bool SameTensors(const std::vector<TensorView>& a, const std::vector<TensorView>& b) {
  static_assert(std::is_trivially_copyable_v<TensorView>);
  if (a.size() != b.size()) return false;
  // memcmp takes no null address, also of 0 bytes.
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(TensorView)) == 0 || a == b;
}

bool SameCounts(const Plan& plan, const VariantPack& pack) {
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    const std::vector<int64_t>& counts = plan.counts[i];
    if (counts.empty()) continue;
    const TensorView& input = pack.inputs[i];
    if (!IsReadable(input)) return false;
    if (!Equal(counts, input.data)) return false;
  }
  return true;
}

bool AllReadable(const OpSignature& signature, const std::vector<TensorView>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (signature.inputs[i].role == Role::kCounts && !IsReadable(inputs[i])) return false;
  }
  return true;
}

}  // namespace

CollectiveOperation::CollectiveOperation(OpSignature signature)
    : signature_(std::move(signature)) {}

Status CollectiveOperation::CheckCounts(const Plan& /*plan*/) const {
  return Ok();
}

Status CollectiveOperation::Complete(Plan* /*plan*/) const {
  return Ok();
}

Status CollectiveOperation::InferShape(const std::vector<TensorDesc>& inputs,
                                       std::vector<TensorDesc>* outputs) const {
  return InferShapeAt({communicator_->rank(), communicator_->size()}, inputs, outputs);
}

Status CollectiveOperation::InferShapeAt(const RankPlace& place,
                                         const std::vector<TensorDesc>& inputs,
                                         std::vector<TensorDesc>* outputs) const {
  COLLOPS_RETURN_IF_ERROR(CheckInputs(signature_, place.rank_size, inputs));
  std::vector<TensorDesc> described;
  COLLOPS_RETURN_IF_ERROR(DescribeOutputs(place, inputs, &described));
  COLLOPS_RETURN_IF_ERROR(CheckOutputSizes(signature_, described));
  *outputs = std::move(described);
  return Ok();
}

Status CollectiveOperation::GetWorkspaceSize(const VariantPack& pack, uint64_t* bytes) {
  first_phase_ = PlanCall(pack);
  COLLOPS_RETURN_IF_ERROR(first_phase_);
  *bytes = plans_.front()->workspace_bytes;
  return Ok();
}

// Leaves the plan of the tensors at the front.
Status CollectiveOperation::PlanCall(const VariantPack& pack) {
  if (const Plan* known = FindPlan(pack)) {
    COLLOPS_RETURN_IF_ERROR(CheckMemory(signature_, pack, known->bytes, communicator_->device()));
  } else {
    Plan plan;
    COLLOPS_RETURN_IF_ERROR(Check(pack, &plan));
    COLLOPS_RETURN_IF_ERROR(Complete(&plan));
    Keep(std::move(plan));
  }
  return Ok();
}

// Every check of the first phase, in the order that is documented; fills in the plan's data.
Status CollectiveOperation::Check(const VariantPack& pack, Plan* plan) const {
  for (const TensorView& input : pack.inputs) plan->inputs.push_back(input.desc);
  COLLOPS_RETURN_IF_ERROR(InferShape(plan->inputs, &plan->outputs));
  COLLOPS_RETURN_IF_ERROR(CheckOutputs(signature_, plan->outputs, pack.outputs));
  plan->counts = ReadCounts(signature_, pack.inputs);
  COLLOPS_RETURN_IF_ERROR(CheckCounts(*plan));
  COLLOPS_RETURN_IF_ERROR(CheckHostData(signature_, pack.inputs));
  plan->bytes = {Bytes(plan->inputs), Bytes(plan->outputs)};
  COLLOPS_RETURN_IF_ERROR(CheckMemory(signature_, pack, plan->bytes, communicator_->device()));
  return CheckSupport(plan->inputs[0].dtype);
}

void CollectiveOperation::Keep(Plan plan) {
  if (plans_.size() == kMaxPlans) plans_.pop_back();
  const auto kept = std::make_shared<Plan>(std::move(plan));
  kept->agreement.emplace(signature_.name);
  AgreeOn(*kept, &*kept->agreement);
  plans_.insert(plans_.begin(), kept);
  checked_plan_ = nullptr;  // a plan that is dropped here may have had this address
}

// Whether these are the tensors of the last call that passed all checks, with the same counts.
bool CollectiveOperation::IsRepeated(const VariantPack& pack) const {
  if (checked_plan_ == nullptr || checked_plan_ != plans_.front().get()) return false;
  return SameTensors(checked_.inputs, pack.inputs) && SameTensors(checked_.outputs, pack.outputs) &&
         SameCounts(*checked_plan_, pack);
}

// The stored plan with these shapes, dtypes and counts, which moves to the front; or null.
const Plan* CollectiveOperation::FindPlan(const VariantPack& pack) {
  for (auto plan = plans_.begin(); plan != plans_.end(); ++plan) {
    if (!SameDescs(**plan, pack) || !SameCounts(**plan, pack)) continue;
    std::rotate(plans_.begin(), plan, plan + 1);
    return plans_.front().get();
  }
  return nullptr;
}

Status CollectiveOperation::ExplainNoPlan(const VariantPack& pack) const {
  const auto same_descs = [&pack](const auto& plan) { return SameDescs(*plan, pack); };
  const auto plan = std::find_if(plans_.begin(), plans_.end(), same_descs);
  COLLOPS_CHECK_ARG(!plans_.empty() || first_phase_.ok(), ERROR_INVALID_PARAM, signature_.called(),
                    ": no plan: the first phase failed: ", first_phase_.message());
  COLLOPS_CHECK_ARG(!plans_.empty(), ERROR_INVALID_PARAM, signature_.called(),
                    ": no plan yet: ", kRunFirstPhase, " with these tensors first");
  COLLOPS_CHECK_ARG(plan != plans_.end(), ERROR_INVALID_PARAM, signature_.called(),
                    ": no plan has the shapes and dtypes of these tensors: ", kRunFirstPhase,
                    " with them first (the last ", kMaxPlans, " plans are kept)");
  if (!AllReadable(signature_, pack.inputs)) {
    COLLOPS_RETURN_IF_ERROR(CheckMemory(signature_, pack, (*plan)->bytes, communicator_->device()));
    COLLOPS_RETURN_IF_ERROR(CheckAddresses(signature_, pack, (*plan)->bytes));
  }
  const Counts counts = ReadCounts(signature_, pack.inputs);
  for (size_t i = 0; i < counts.size(); ++i) {
    for (size_t r = 0; r < counts[i].size(); ++r) {
      COLLOPS_CHECK_ARG(counts[i][r] == (*plan)->counts[i][r], ERROR_INVALID_PARAM,
                        signature_.called(), ": ", signature_.inputs[i].name, "[", r, "] is ",
                        counts[i][r], " but no plan has it (the last one has ",
                        (*plan)->counts[i][r], "): ", kRunFirstPhase, " with these counts first");
    }
  }
  return Error(ERROR_INVALID_PARAM, signature_.called(), ": another thread changes the counts");
}

// Checks what may differ between calls of one plan.
Status CollectiveOperation::CheckExecute(const VariantPack& pack, const void* workspace,
                                         uint64_t workspace_bytes, const Plan** plan) {
  if (IsRepeated(pack)) {
    *plan = checked_plan_;
  } else {
    *plan = FindPlan(pack);
    if (*plan == nullptr) return ExplainNoPlan(pack);
    COLLOPS_RETURN_IF_ERROR(CheckMemory(signature_, pack, (*plan)->bytes, communicator_->device()));
    COLLOPS_RETURN_IF_ERROR(CheckAddresses(signature_, pack, (*plan)->bytes));
    checked_plan_ = *plan;
    checked_ = pack;
  }
  const uint64_t needed = (*plan)->workspace_bytes;
  COLLOPS_CHECK_ARG(workspace_bytes >= needed, ERROR_INVALID_WORKSPACE_SIZE, signature_.called(),
                    ": the workspace has ", workspace_bytes, " bytes, the call needs ", needed);
  COLLOPS_CHECK_ARG(workspace != nullptr || needed == 0, ERROR_INVALID_WORKSPACE_ADDR,
                    signature_.called(), ": the workspace is missing, the call needs ", needed,
                    " bytes");
  return Ok();
}

Status CollectiveOperation::Execute(const VariantPack& pack, void* workspace,
                                    uint64_t workspace_bytes, void* stream) {
  COLLOPS_RETURN_IF_ERROR(why_not_);
  const Plan* plan = nullptr;
  const Status status = CheckExecute(pack, workspace, workspace_bytes, &plan);
  if (status.ok()) return Run(*plan, pack, workspace, stream);
  // The error of the call matters more than one of the refusal.
  static_cast<void>(Refuse(status));
  return status;
}

Status CollectiveOperation::Refuse(const Status& reason) {
  return communicator_->Refuse(signature_.called(), reason);
}

}  // namespace collops

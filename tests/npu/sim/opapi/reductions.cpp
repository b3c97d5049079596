// Sums and comparisons of a simulated libopapi, from the published signatures.
#include <cstdint>

#include "tensor.h"

using collops_sim::FirstPhase;
using collops_sim::Number;
using collops_sim::Tensor;

namespace {

using Fold = Number (*)(Number, Number);

Number Plus(Number sum, Number value) {
  return sum + value;
}
Number And(Number all, Number value) {
  return all != 0 && value != 0 ? 1 : 0;
}

// The output as a view of the input's shape: stride 0 along the dims that are folded.
Tensor Unfolded(const Tensor& out, const Tensor& self, const std::vector<bool>& is_folded) {
  const bool has_all_dims = out.dims.size() == self.dims.size();
  Tensor view = out;
  view.dims = self.dims;
  view.strides.assign(self.dims.size(), 0);
  for (size_t d = 0, kept = 0; d < self.dims.size(); ++d) {
    if (!is_folded[d]) view.strides[d] = out.strides[has_all_dims ? d : kept];
    if (!is_folded[d]) ++kept;
  }
  return view;
}

int PrepareFold(const char* function, const void* from, const void* array, const void* result,
                Fold fold, Number first, uint64_t* size, void** executor) {
  FirstPhase phase(function);
  const Tensor* const self = phase.NeedReal("self", from);
  const Tensor* const out = phase.NeedReal("out", result);
  const auto* const dims = collops_sim::FindIntegers(array);
  if (dims == nullptr) phase.Refuse(collops_sim::kAclnnInvalid, "dim is no array");
  if (phase.code() != 0) return phase.code();
  const auto rank = static_cast<int64_t>(self->dims.size());
  std::vector<bool> is_folded(self->dims.size(), dims->empty());
  for (const int64_t dim : *dims) {
    if (rank > 0) is_folded[static_cast<size_t>((dim + rank) % rank)] = true;
  }
  int64_t left = 1;
  for (size_t d = 0; d < is_folded.size(); ++d) left *= is_folded[d] ? 1 : self->dims[d];
  if (out->count() != left) {
    phase.Refuse(collops_sim::kAclnnInvalid, "out has another size");
    return phase.code();
  }
  const auto work = [a = *self, b = *out, view = Unfolded(*out, *self, is_folded), fold, first] {
    b.WriteNumbers(std::vector<Number>(static_cast<size_t>(b.count()), first));
    // One element at a time: those of the view lie on each other.
    view.FoldNumbers(a.ReadNumbers(), fold);
  };
  return phase.Finish(work, 0, size, executor);
}

}  // namespace

COLLOPS_SIM_SECOND_PHASE(aclnnAll)
COLLOPS_SIM_SECOND_PHASE(aclnnReduceSum)
COLLOPS_SIM_SECOND_PHASE(aclnnEqTensor)
COLLOPS_SIM_SECOND_PHASE(aclnnEqual)

extern "C" {

int aclnnAllGetWorkspaceSize(const void* self, const void* dim, bool, const void* out,
                             uint64_t* size, void** executor) {
  return PrepareFold("aclnnAll", self, dim, out, And, 1, size, executor);
}

// Rounds after every addition, where a device may not.
int aclnnReduceSumGetWorkspaceSize(const void* self, const void* dims, bool, int, const void* out,
                                   uint64_t* size, void** executor) {
  return PrepareFold("aclnnReduceSum", self, dims, out, Plus, 0, size, executor);
}

int aclnnEqTensorGetWorkspaceSize(const void* first, const void* second, const void* result,
                                  uint64_t* size, void** executor) {
  FirstPhase phase("aclnnEqTensor");
  const Tensor* const self = phase.NeedReal("self", first);
  const Tensor* const other = phase.NeedReal("other", second);
  const Tensor* const out = phase.NeedReal("out", result);
  if (phase.code() != 0 || !phase.NeedSpread(*self, *out) || !phase.NeedSpread(*other, *out)) {
    return phase.code();
  }
  const auto work = [a = self->Over(out->dims), b = other->Over(out->dims), c = *out] {
    std::vector<Number> values = a.ReadNumbers();
    const std::vector<Number> others = b.ReadNumbers();
    for (size_t i = 0; i < values.size(); ++i) values[i] = values[i] == others[i] ? 1 : 0;
    c.WriteNumbers(values);
  };
  return phase.Finish(work, 0, size, executor);
}

int aclnnEqualGetWorkspaceSize(const void* first, const void* second, const void* result,
                               uint64_t* size, void** executor) {
  FirstPhase phase("aclnnEqual");
  const Tensor* const self = phase.NeedReal("self", first);
  const Tensor* const other = phase.NeedReal("other", second);
  const Tensor* const out = phase.NeedReal("out", result);
  if (phase.code() != 0) return phase.code();
  const auto work = [a = *self, b = *other, c = *out] {
    c.WriteNumbers({a.dims == b.dims && a.ReadNumbers() == b.ReadNumbers() ? 1.0L : 0.0L});
  };
  return phase.Finish(work, 0, size, executor);
}

}  // extern "C"

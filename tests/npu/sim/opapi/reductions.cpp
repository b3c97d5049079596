// Sums of a simulated libopapi, from the published signatures.
#include <cstdint>

#include "tensor.h"

using collops_sim::FirstPhase;
using collops_sim::Number;
using collops_sim::Tensor;

namespace {

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

}  // namespace

COLLOPS_SIM_SECOND_PHASE(aclnnReduceSum)

// Rounds after every addition, where a device may not.
extern "C" int aclnnReduceSumGetWorkspaceSize(const void* from, const void* array, bool, int,
                                              const void* result, uint64_t* size, void** executor) {
  FirstPhase phase("aclnnReduceSum");
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
  const auto work = [a = *self, b = *out, view = Unfolded(*out, *self, is_folded)] {
    b.WriteNumbers(std::vector<Number>(static_cast<size_t>(b.count())));
    // One element at a time: those of the view lie on each other.
    view.AddNumbers(a.ReadNumbers());
  };
  return phase.Finish(work, 0, size, executor);
}

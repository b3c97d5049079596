// Copies and fills of a simulated libopapi, from the published signatures.
#include <cstdint>

#include "tensor.h"

using collops_sim::FirstPhase;
using collops_sim::Number;
using collops_sim::Tensor;

namespace {

// Between complex numbers, of one type only.
void Copy(const Tensor& from, const Tensor& to) {
  if (from.type == to.type) {
    to.WriteBytes(from.ReadBytes());
  } else {
    to.WriteNumbers(from.ReadNumbers());
  }
}

int PrepareFill(const char* function, const void* self, Number value, uint64_t* size,
                void** executor) {
  FirstPhase phase(function);
  const Tensor* const out = phase.NeedReal("selfRef", self);
  if (phase.code() != 0) return phase.code();
  const auto work = [to = *out, value] {
    to.WriteNumbers(std::vector<Number>(static_cast<size_t>(to.count()), value));
  };
  return phase.Finish(work, 0, size, executor);
}

}  // namespace

COLLOPS_SIM_SECOND_PHASE(aclnnInplaceCopy)
COLLOPS_SIM_SECOND_PHASE(aclnnInplaceFillScalar)
COLLOPS_SIM_SECOND_PHASE(aclnnInplaceZero)
COLLOPS_SIM_SECOND_PHASE(aclnnCat)
COLLOPS_SIM_SECOND_PHASE(aclnnRepeat)

extern "C" {

int aclnnInplaceCopyGetWorkspaceSize(const void* self, const void* src, uint64_t* size,
                                     void** executor) {
  FirstPhase phase("aclnnInplaceCopy");
  const Tensor* const to = phase.NeedAny("selfRef", self);
  const Tensor* const from = phase.NeedAny("src", src);
  if (phase.code() != 0 || !phase.NeedSpread(*from, *to)) return phase.code();
  if (from->type != to->type) phase.NeedReal("src", src), phase.NeedReal("selfRef", self);
  return phase.Finish([a = from->Over(to->dims), b = *to] { Copy(a, b); }, 0, size, executor);
}

int aclnnInplaceFillScalarGetWorkspaceSize(const void* self, const void* value, uint64_t* size,
                                           void** executor) {
  Number number = 0;
  FirstPhase phase("aclnnInplaceFillScalar");
  if (!phase.NeedScalar(value, &number)) return phase.code();
  return PrepareFill("aclnnInplaceFillScalar", self, number, size, executor);
}
int aclnnInplaceZeroGetWorkspaceSize(const void* self, uint64_t* size, void** executor) {
  return PrepareFill("aclnnInplaceZero", self, 0, size, executor);
}

int aclnnRepeatGetWorkspaceSize(const void* from, const void* array, const void* result,
                                uint64_t* size, void** executor) {
  FirstPhase phase("aclnnRepeat");
  const Tensor* const self = phase.NeedAny("self", from);
  const Tensor* const out = phase.NeedAny("out", result);
  const auto* const times = collops_sim::FindIntegers(array);
  if (times == nullptr) phase.Refuse(collops_sim::kAclnnInvalid, "repeats is no array");
  if (phase.code() != 0) return phase.code();
  const size_t rank = out->dims.size();
  if (times->size() != rank || self->dims.size() > rank || self->type != out->type) {
    phase.Refuse(collops_sim::kAclnnInvalid, "repeats do not go with self and out");
    return phase.code();
  }
  // Each dim as two: the repetitions, which lie on each other in the input, and its elements.
  const size_t added = rank - self->dims.size();
  Tensor a = *self;
  Tensor b = *out;
  a.dims.clear();
  a.strides.clear();
  b.strides.clear();
  for (size_t d = 0; d < rank; ++d) {
    const int64_t length = d < added ? 1 : self->dims[d - added];
    if ((*times)[d] * length != out->dims[d]) {
      phase.Refuse(collops_sim::kAclnnInvalid, "out has another size");
      return phase.code();
    }
    a.dims.insert(a.dims.end(), {(*times)[d], length});
    a.strides.insert(a.strides.end(), {0, d < added ? 0 : self->strides[d - added]});
    b.strides.insert(b.strides.end(), {out->strides[d] * length, out->strides[d]});
  }
  b.dims = a.dims;
  return phase.Finish([a, b] { Copy(a, b); }, 0, size, executor);
}

int aclnnCatGetWorkspaceSize(const void* list, int64_t dim, const void* result, uint64_t* size,
                             void** executor) {
  FirstPhase phase("aclnnCat");
  const Tensor* const out = phase.NeedAny("out", result);
  const auto* const handles = collops_sim::FindTensors(list);
  if (handles == nullptr) phase.Refuse(collops_sim::kAclnnInvalid, "this is no list of tensors");
  if (phase.code() != 0) return phase.code();
  const auto rank = static_cast<int64_t>(out->dims.size());
  if (dim < -rank || dim >= rank) {
    phase.Refuse(collops_sim::kAclnnInvalid, "there is no such dim");
    return phase.code();
  }
  const auto along = static_cast<size_t>(dim < 0 ? dim + rank : dim);
  std::vector<std::pair<Tensor, Tensor>> copies;
  Tensor place = *out;  // of the next one
  int64_t end = 0;
  for (const void* const handle : *handles) {
    const Tensor* const part = phase.NeedAny("a tensor of the list", handle);
    if (part == nullptr) return phase.code();
    if (part->type != out->type) {
      phase.Refuse(collops_sim::kAclnnInvalid, "joining different types is not simulated");
      return phase.code();
    }
    if (part->dims.size() == 1 && part->dims[0] == 0) continue;  // as torch allows
    place.dims = out->dims;
    if (part->dims.size() == place.dims.size()) place.dims[along] = part->dims[along];
    if (!phase.NeedSameShape(*part, place)) return phase.code();
    copies.emplace_back(*part, place);
    end += part->dims[along];
    place.data += static_cast<size_t>(part->dims[along] * out->strides[along]) * out->element();
  }
  if (end != out->dims[along]) phase.Refuse(collops_sim::kAclnnInvalid, "out has another size");
  const auto work = [copies] {
    for (const auto& [from, to] : copies) Copy(from, to);
  };
  return phase.Finish(work, 0, size, executor);
}

}  // extern "C"

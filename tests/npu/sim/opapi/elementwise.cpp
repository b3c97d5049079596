// Casts and arithmetic of elements of a simulated libopapi, from the published signatures.
#include <cmath>
#include <cstdint>

#include "tensor.h"

using collops_sim::FirstPhase;
using collops_sim::Number;
using collops_sim::Tensor;

namespace {

using Arithmetic = std::function<Number(Number, Number)>;

enum RoundingMode { kTrueDivision, kTruncated, kFloored };

// out = operation(self, other), rounded once.
int PrepareTensors(const char* function, const void* first, const void* second, const void* scale,
                   const void* result, bool is_scaled, const Arithmetic& operation, uint64_t* size,
                   void** executor) {
  FirstPhase phase(function);
  const Tensor* const self = phase.NeedReal("self", first);
  const Tensor* const other = phase.NeedReal("other", second);
  const Tensor* const out = phase.NeedReal("out", result);
  Number alpha = 1;
  if (is_scaled) phase.NeedScalar(scale, &alpha);
  if (phase.code() != 0 || !phase.NeedSpread(*self, *out) || !phase.NeedSpread(*other, *out)) {
    return phase.code();
  }
  const auto work = [a = self->Over(out->dims), b = other->Over(out->dims), c = *out, alpha,
                     operation] {
    std::vector<Number> values = a.ReadNumbers();
    const std::vector<Number> others = b.ReadNumbers();
    for (size_t i = 0; i < values.size(); ++i) values[i] = operation(values[i], alpha * others[i]);
    c.WriteNumbers(values);
  };
  return phase.Finish(work, 0, size, executor);
}

// The same with one number in the place of `other`.
int PrepareScalar(const char* function, const void* first, const void* second, const void* scale,
                  const void* result, bool is_scaled, const Arithmetic& operation, uint64_t* size,
                  void** executor) {
  FirstPhase phase(function);
  const Tensor* const self = phase.NeedReal("self", first);
  const Tensor* const out = phase.NeedReal("out", result);
  Number other = 0;
  Number alpha = 1;
  if (phase.code() != 0 || !phase.NeedScalar(second, &other)) return phase.code();
  if (is_scaled && !phase.NeedScalar(scale, &alpha)) return phase.code();
  if (!phase.NeedSpread(*self, *out)) return phase.code();
  const auto work = [a = self->Over(out->dims), c = *out, number = alpha * other, operation] {
    std::vector<Number> values = a.ReadNumbers();
    for (Number& value : values) value = operation(value, number);
    c.WriteNumbers(values);
  };
  return phase.Finish(work, 0, size, executor);
}

Number Plus(Number a, Number b) {
  return a + b;
}
Number Times(Number a, Number b) {
  return a * b;
}
Number By(Number a, Number b) {
  return a / b;
}

Arithmetic RoundedBy(int mode) {
  if (mode == kTruncated) return [](Number a, Number b) { return std::trunc(a / b); };
  if (mode == kFloored) return [](Number a, Number b) { return std::floor(a / b); };
  return By;
}

}  // namespace

// The four signatures of an operation on `other` times `alpha`: with a tensor or a scalar, into
// `out` or in place.
#define COLLOPS_SIM_SCALED(name, operation)                                                        \
  COLLOPS_SIM_SECOND_PHASE(aclnn##name)                                                            \
  COLLOPS_SIM_SECOND_PHASE(aclnnInplace##name)                                                     \
  COLLOPS_SIM_SECOND_PHASE(aclnn##name##s)                                                         \
  COLLOPS_SIM_SECOND_PHASE(aclnnInplace##name##s)                                                  \
  extern "C" int aclnn##name##GetWorkspaceSize(const void* self, const void* other,                \
                                               const void* alpha, const void* out, uint64_t* size, \
                                               void** executor) {                                  \
    return PrepareTensors("aclnn" #name, self, other, alpha, out, true, operation, size,           \
                          executor);                                                               \
  }                                                                                                \
  extern "C" int aclnnInplace##name##GetWorkspaceSize(                                             \
      const void* self, const void* other, const void* alpha, uint64_t* size, void** executor) {   \
    return PrepareTensors("aclnnInplace" #name, self, other, alpha, self, true, operation, size,   \
                          executor);                                                               \
  }                                                                                                \
  extern "C" int aclnn##name##sGetWorkspaceSize(const void* self, const void* other,               \
                                                const void* alpha, const void* out,                \
                                                uint64_t* size, void** executor) {                 \
    return PrepareScalar("aclnn" #name "s", self, other, alpha, out, true, operation, size,        \
                         executor);                                                                \
  }                                                                                                \
  extern "C" int aclnnInplace##name##sGetWorkspaceSize(                                            \
      const void* self, const void* other, const void* alpha, uint64_t* size, void** executor) {   \
    return PrepareScalar("aclnnInplace" #name "s", self, other, alpha, self, true, operation,      \
                         size, executor);                                                          \
  }

// The same without `alpha`.
#define COLLOPS_SIM_UNSCALED(name, operation)                                                      \
  COLLOPS_SIM_SECOND_PHASE(aclnn##name)                                                            \
  COLLOPS_SIM_SECOND_PHASE(aclnnInplace##name)                                                     \
  COLLOPS_SIM_SECOND_PHASE(aclnn##name##s)                                                         \
  COLLOPS_SIM_SECOND_PHASE(aclnnInplace##name##s)                                                  \
  extern "C" int aclnn##name##GetWorkspaceSize(const void* self, const void* other,                \
                                               const void* out, uint64_t* size, void** executor) { \
    return PrepareTensors("aclnn" #name, self, other, nullptr, out, false, operation, size,        \
                          executor);                                                               \
  }                                                                                                \
  extern "C" int aclnnInplace##name##GetWorkspaceSize(const void* self, const void* other,         \
                                                      uint64_t* size, void** executor) {           \
    return PrepareTensors("aclnnInplace" #name, self, other, nullptr, self, false, operation,      \
                          size, executor);                                                         \
  }                                                                                                \
  extern "C" int aclnn##name##sGetWorkspaceSize(                                                   \
      const void* self, const void* other, const void* out, uint64_t* size, void** executor) {     \
    return PrepareScalar("aclnn" #name "s", self, other, nullptr, out, false, operation, size,     \
                         executor);                                                                \
  }                                                                                                \
  extern "C" int aclnnInplace##name##sGetWorkspaceSize(const void* self, const void* other,        \
                                                       uint64_t* size, void** executor) {          \
    return PrepareScalar("aclnnInplace" #name "s", self, other, nullptr, self, false, operation,   \
                         size, executor);                                                          \
  }

COLLOPS_SIM_SCALED(Add, Plus)
COLLOPS_SIM_UNSCALED(Mul, Times)
COLLOPS_SIM_UNSCALED(Div, By)

COLLOPS_SIM_SECOND_PHASE(aclnnDivMod)
COLLOPS_SIM_SECOND_PHASE(aclnnInplaceDivMod)
COLLOPS_SIM_SECOND_PHASE(aclnnDivMods)
COLLOPS_SIM_SECOND_PHASE(aclnnInplaceDivMods)
COLLOPS_SIM_SECOND_PHASE(aclnnCast)

extern "C" {

int aclnnDivModGetWorkspaceSize(const void* self, const void* other, int mode, const void* out,
                                uint64_t* size, void** executor) {
  return PrepareTensors("aclnnDivMod", self, other, nullptr, out, false, RoundedBy(mode), size,
                        executor);
}
int aclnnInplaceDivModGetWorkspaceSize(const void* self, const void* other, int mode,
                                       uint64_t* size, void** executor) {
  return PrepareTensors("aclnnInplaceDivMod", self, other, nullptr, self, false, RoundedBy(mode),
                        size, executor);
}
int aclnnDivModsGetWorkspaceSize(const void* self, const void* other, int mode, const void* out,
                                 uint64_t* size, void** executor) {
  return PrepareScalar("aclnnDivMods", self, other, nullptr, out, false, RoundedBy(mode), size,
                       executor);
}
int aclnnInplaceDivModsGetWorkspaceSize(const void* self, const void* other, int mode,
                                        uint64_t* size, void** executor) {
  return PrepareScalar("aclnnInplaceDivMods", self, other, nullptr, self, false, RoundedBy(mode),
                       size, executor);
}

int aclnnCastGetWorkspaceSize(const void* from, int type, const void* result, uint64_t* size,
                              void** executor) {
  FirstPhase phase("aclnnCast");
  const Tensor* const self = phase.NeedReal("self", from);
  const Tensor* const out = phase.NeedReal("out", result);
  if (phase.code() != 0 || !phase.NeedSameShape(*self, *out)) return phase.code();
  if (type != out->type) {
    phase.Refuse(collops_sim::kAclnnInvalid, "dtype is not the data type of out");
  }
  return phase.Finish([a = *self, b = *out] { b.WriteNumbers(a.ReadNumbers()); }, 0, size,
                      executor);
}

}  // extern "C"

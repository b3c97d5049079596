// Casts, sums and scaling of a simulated libopapi, from the published signatures.
#include <cstdint>

#include "tensor.h"

using collops_sim::FirstPhase;
using collops_sim::Launch;
using collops_sim::Tensor;

namespace {

// out = self + alpha * other, in float32, rounded once. One row of `other` is added to every row.
int PrepareAdd(const char* function, const void* first, const void* second, const void* scale,
               const void* result, uint64_t* size, void** executor) {
  FirstPhase phase(function);
  const Tensor* const self = phase.Need("self", first);
  const Tensor* const other = phase.Need("other", second);
  const Tensor* const out = phase.Need("out", result);
  double alpha = 0;
  if (!phase.NeedScalar(scale, &alpha) || !phase.NeedSameShape(*self, *out)) return phase.code();
  const bool is_row = other->dims.size() == 2 && self->dims.size() == 2 && other->dims[0] == 1 &&
                      other->dims[1] == self->dims[1];
  if (!is_row && !phase.NeedSameShape(*self, *other)) return phase.code();
  const auto work = [a = *self, b = *other, c = *out, factor = static_cast<float>(alpha)] {
    std::vector<float> values = a.Read();
    const std::vector<float> added = b.Read();
    for (size_t i = 0; i < values.size(); ++i) values[i] += factor * added[i % added.size()];
    c.Write(values);
  };
  return phase.Finish(work, 0, size, executor);
}

}  // namespace

extern "C" {

int aclnnAddGetWorkspaceSize(const void* self, const void* other, const void* alpha,
                             const void* out, uint64_t* size, void** executor) {
  return PrepareAdd("aclnnAdd", self, other, alpha, out, size, executor);
}
int aclnnAdd(void* workspace, uint64_t size, void* executor, void* stream) {
  return Launch("aclnnAdd", workspace, size, executor, stream);
}

int aclnnInplaceAddGetWorkspaceSize(const void* self, const void* other, const void* alpha,
                                    uint64_t* size, void** executor) {
  return PrepareAdd("aclnnInplaceAdd", self, other, alpha, self, size, executor);
}
int aclnnInplaceAdd(void* workspace, uint64_t size, void* executor, void* stream) {
  return Launch("aclnnInplaceAdd", workspace, size, executor, stream);
}

int aclnnCastGetWorkspaceSize(const void* from, int type, const void* result, uint64_t* size,
                              void** executor) {
  FirstPhase phase("aclnnCast");
  const Tensor* const self = phase.Need("self", from);
  const Tensor* const out = phase.Need("out", result);
  if (phase.code() != 0 || !phase.NeedSameShape(*self, *out)) return phase.code();
  if (type != out->type) {
    phase.Refuse(collops_sim::kAclnnInvalid, "dtype is not the data type of out");
  }
  return phase.Finish([a = *self, b = *out] { b.Write(a.Read()); }, 0, size, executor);
}
int aclnnCast(void* workspace, uint64_t size, void* executor, void* stream) {
  return Launch("aclnnCast", workspace, size, executor, stream);
}

int aclnnMulsGetWorkspaceSize(const void* from, const void* scale, const void* result,
                              uint64_t* size, void** executor) {
  FirstPhase phase("aclnnMuls");
  const Tensor* const self = phase.Need("self", from);
  const Tensor* const out = phase.Need("out", result);
  double factor = 0;
  if (!phase.NeedScalar(scale, &factor) || !phase.NeedSameShape(*self, *out)) return phase.code();
  const auto work = [a = *self, b = *out, single = static_cast<float>(factor)] {
    std::vector<float> values = a.Read();
    for (float& value : values) value *= single;
    b.Write(values);
  };
  return phase.Finish(work, 0, size, executor);
}
int aclnnMuls(void* workspace, uint64_t size, void* executor, void* stream) {
  return Launch("aclnnMuls", workspace, size, executor, stream);
}

}  // extern "C"

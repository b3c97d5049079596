// A simulated libnnopbase, from its published signatures: tensors, scalars and executors.
#include "tensor.h"

#include <cstring>
#include <map>
#include <mutex>

#include "acl.h"

namespace collops_sim {
namespace {

// Destroyed handles are known by their absence.
std::mutex mutex;
template <typename Value>
std::map<const void*, Value>& All() {
  static auto* const all = new std::map<const void*, Value>;
  return *all;
}

template <typename Value>
void* Keep(Value value) {
  const std::lock_guard<std::mutex> lock(mutex);
  auto* const handle = new char;
  All<Value>()[handle] = std::move(value);
  return handle;
}

// The handle itself is not given back, so that none comes twice.
template <typename Value>
int Destroy(const void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (handle == nullptr) return collops_sim::Refuse(kAclnnNull, "a null handle is destroyed");
  if (All<Value>().erase(handle) != 0) return kAclnnSuccess;
  return collops_sim::Refuse(kAclnnInvalid,
                             "a handle is destroyed that is none of ours, or is destroyed twice");
}

template <typename Value>
Value* FindOne(const void* handle) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = All<Value>().find(handle);
  return found == All<Value>().end() ? nullptr : &found->second;
}

}  // namespace

int64_t Tensor::count() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

const Tensor* FindTensor(const void* handle) {
  return FindOne<Tensor>(handle);
}

const Tensors* FindTensors(const void* handle) {
  return FindOne<Tensors>(handle);
}

const Integers* FindIntegers(const void* handle) {
  return FindOne<Integers>(handle);
}

bool FindScalar(const void* handle, Number* value) {
  const Number* const found = FindOne<Number>(handle);
  if (found != nullptr) *value = *found;
  return found != nullptr;
}

FirstPhase::FirstPhase(const char* function)
    : function_(function),
      code_(PlannedFailure((std::string(function) + "GetWorkspaceSize").c_str())) {
  if (code_ == 0) code_ = NeedDevice();
}

bool FirstPhase::Refuse(int code, const std::string& text) {
  if (code_ == 0) code_ = collops_sim::Refuse(code, std::string(function_) + ": " + text);
  return false;
}

const Tensor* FirstPhase::Need(const char* name, const void* handle) {
  const Tensor* const tensor = NeedAny(name, handle);
  if (tensor != nullptr && tensor->type != kAclFloat && tensor->type != kAclFloat16 &&
      tensor->type != kAclBFloat16) {
    Refuse(kAclnnInvalid, std::string(name) + ": this data type is not taken");
  }
  return code_ == 0 ? tensor : nullptr;
}

const Tensor* FirstPhase::NeedReal(const char* name, const void* handle) {
  const Tensor* const tensor = NeedAny(name, handle);
  if (tensor != nullptr && (tensor->type == kAclComplex64 || tensor->type == kAclComplex128)) {
    Refuse(kAclnnInvalid, std::string(name) + ": complex numbers are not simulated");
  }
  return code_ == 0 ? tensor : nullptr;
}

const Tensor* FirstPhase::NeedAny(const char* name, const void* handle) {
  if (code_ != 0) return nullptr;
  const Tensor* tensor = FindTensor(handle);
  if (handle == nullptr) {
    Refuse(kAclnnNull, std::string(name) + " is null");
  } else if (tensor == nullptr) {
    Refuse(kAclnnInvalid, std::string(name) + " is no tensor, or was destroyed");
  } else if (tensor->element() == 0) {
    Refuse(kAclnnInvalid, std::string(name) + ": this data type is not taken");
  } else if (!tensor->is_inside) {
    Refuse(kAclnnInvalid, std::string(name) + ": the view does not lie within its storage");
  }
  if (code_ != 0) return nullptr;
  if (tensor->extent > 0) spans_.push_back({tensor->data, tensor->extent * tensor->element()});
  return tensor;
}

bool FirstPhase::NeedScalar(const void* handle, Number* value) {
  if (code_ != 0) return false;
  if (handle == nullptr) return Refuse(kAclnnNull, "the scalar is null");
  return FindScalar(handle, value) || Refuse(kAclnnInvalid, "the scalar was destroyed");
}

bool FirstPhase::NeedSameShape(const Tensor& first, const Tensor& second) {
  return first.dims == second.dims || Refuse(kAclnnInvalid, "the shapes differ");
}

bool FirstPhase::NeedSpread(const Tensor& from, const Tensor& to) {
  return from.FitsOver(to.dims) || Refuse(kAclnnInvalid, "the shapes differ");
}

int FirstPhase::Finish(std::function<void()> work, uint64_t workspace, uint64_t* size,
                       void** executor) {
  if (size == nullptr || executor == nullptr) Refuse(kAclnnNull, "an output pointer is null");
  if (code_ != 0) return code_;
  Executor made;
  made.function = function_;
  made.workspace = *size = workspace;
  made.device = CurrentDevice();
  made.work = std::move(work);
  made.spans = spans_;
  *executor = Keep(std::move(made));
  return kAclnnSuccess;
}

int Launch(const char* function, void* workspace, uint64_t size, void* handle,
           void* stream_handle) {
  if (const int code = PlannedFailure(function)) return code;
  const std::string name = std::string(function) + ": ";
  if (handle == nullptr) return collops_sim::Refuse(kAclnnNull, name + "the executor is null");
  Executor* const executor = FindOne<Executor>(handle);
  if (executor == nullptr) return collops_sim::Refuse(kAclnnInvalid, name + "this is no executor");
  if (executor->function != function) {
    return collops_sim::Refuse(kAclnnInvalid, name + "the executor is of " + executor->function);
  }
  if (executor->is_used)
    return collops_sim::Refuse(kAclnnInner, name + "the executor was used already");
  int code = 0;
  Stream* stream = FindStreamHere(stream_handle, &code);
  if (stream == nullptr) return code;
  if (stream->device() != executor->device) {
    return collops_sim::Refuse(kAclnnInvalid, name + "the tensors are another device's");
  }
  if (size < executor->workspace)
    return collops_sim::Refuse(kAclnnInvalid, name + "the workspace is too small");
  if (executor->workspace > 0 && DeviceOf(workspace, size) != executor->device) {
    return collops_sim::Refuse(kAclnnInvalid,
                               name + "the workspace is not in this device's memory");
  }
  // A first phase needs no memory yet: only sizes may be asked for.
  std::vector<const void*> memory;
  for (const auto& [data, bytes] : executor->spans) {
    if (DeviceOf(data, bytes) != executor->device) {
      return collops_sim::Refuse(kAclnnInvalid,
                                 name + "a tensor does not lie in this device's memory");
    }
    memory.push_back(data);
  }
  executor->is_used = !executor->is_repeatable;
  if (executor->workspace > 0) memory.push_back(workspace);
  stream->Enqueue(
      [workspace, bytes = executor->workspace, work = executor->work] {
        // Whoever shares it meanwhile finds out.
        if (bytes > 0) std::memset(workspace, 0x5A, bytes);
        work();
        return 0;
      },
      memory);
  return kAclnnSuccess;
}

}  // namespace collops_sim

extern "C" {

using collops_sim::Tensor;

void* aclCreateTensor(const int64_t* dims, uint64_t num_dims, int type, const int64_t* strides,
                      int64_t offset, int, const int64_t* storage_dims, uint64_t num_storage_dims,
                      void* data) {
  Tensor made;
  made.type = type;
  made.dims.assign(dims, dims + num_dims);
  made.strides.assign(num_dims, 1);
  for (size_t d = num_dims; d-- > 1;) made.strides[d - 1] = made.strides[d] * made.dims[d];
  if (strides != nullptr) made.strides.assign(strides, strides + num_dims);
  int64_t storage = 1;
  for (uint64_t d = 0; d < num_storage_dims; ++d) storage *= storage_dims[d];
  int64_t last = 0;
  bool is_positive = offset >= 0;
  for (size_t d = 0; d < num_dims; ++d) {
    is_positive = is_positive && made.strides[d] >= 0 && made.dims[d] >= 0;
    last += (made.dims[d] - 1) * made.strides[d];
  }
  const bool is_empty = is_positive && made.count() == 0;
  made.is_inside = is_positive && (is_empty || offset + last < storage);
  made.extent = is_empty || !is_positive ? 0 : static_cast<uint64_t>(last) + 1;
  made.data = static_cast<char*>(data) + static_cast<size_t>(offset) * made.element();
  return collops_sim::Keep(made);
}
int aclDestroyTensor(const void* tensor) {
  return collops_sim::Destroy<Tensor>(tensor);
}

void* aclCreateScalar(const void* value, int type) {
  if (collops_sim::ElementSize(type) == 0 || type == collops_sim::kAclComplex64 ||
      type == collops_sim::kAclComplex128) {
    collops_sim::Refuse(collops_sim::kAclnnInvalid, "a scalar of this type is not simulated");
    return nullptr;
  }
  return collops_sim::Keep(collops_sim::Load(type, static_cast<const char*>(value)));
}
int aclDestroyScalar(const void* scalar) {
  return collops_sim::Destroy<collops_sim::Number>(scalar);
}

// The list takes its tensors over, and destroys them.
void* aclCreateTensorList(const void* const* tensors, uint64_t count) {
  return collops_sim::Keep(collops_sim::Tensors(tensors, tensors + count));
}
int aclDestroyTensorList(const void* list) {
  const auto* const found = collops_sim::FindTensors(list);
  if (found != nullptr) {
    for (const void* const tensor : *found) collops_sim::Destroy<Tensor>(tensor);
  }
  return collops_sim::Destroy<collops_sim::Tensors>(list);
}

void* aclCreateIntArray(const int64_t* values, uint64_t count) {
  return collops_sim::Keep(collops_sim::Integers(values, values + count));
}
int aclDestroyIntArray(const void* array) {
  return collops_sim::Destroy<collops_sim::Integers>(array);
}

int aclSetAclOpExecutorRepeatable(void* handle) {
  auto* const executor = collops_sim::FindOne<collops_sim::Executor>(handle);
  if (executor == nullptr || executor->is_used) {
    return collops_sim::Refuse(collops_sim::kAclnnInvalid, "this executor cannot be repeatable");
  }
  executor->is_repeatable = true;
  return 0;
}
int aclDestroyAclOpExecutor(void* handle) {
  return collops_sim::Destroy<collops_sim::Executor>(handle);
}

}  // extern "C"

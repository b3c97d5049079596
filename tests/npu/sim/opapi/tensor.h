#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stream.h"

// What aclnn calls are given, and what they leave between their two phases.
namespace collops_sim {

enum AclnnStatus {
  kAclnnSuccess = 0,
  kAclnnNull = 161001,
  kAclnnInvalid = 161002,
  kAclnnInner = 561000,
};
enum AclType { kAclFloat = 0, kAclFloat16 = 1, kAclDouble = 11, kAclBFloat16 = 27 };

// A view of device memory in the three floating-point types.
struct Tensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  int type = kAclFloat;
  char* data = nullptr;    // of its first element
  uint64_t extent = 0;     // from there, in elements; 0 for an empty view
  bool is_inside = false;  // the view lies within its storage

  int64_t count() const;
  size_t element() const;
  // Elements in row-major order of the view.
  std::vector<float> Read() const;
  // Rounds each once, to the view's type.
  void Write(const std::vector<float>& values) const;
};

// Null for a handle that is none of ours, or was destroyed.
const Tensor* FindTensor(const void* handle);
// The scalar's value; false for a handle that is none of ours.
bool FindScalar(const void* handle, double* value);

// One call between its two phases.
struct Executor {
  std::string function;
  uint64_t workspace = 0;  // bytes
  int device = -1;
  std::function<void()> work;
  std::vector<std::pair<const void*, size_t>> spans;  // of its tensors, in bytes
  bool is_repeatable = false;
  bool is_used = false;
};

// The checks of a first phase; the first thing that is wrong decides.
class FirstPhase {
 public:
  explicit FirstPhase(const char* function);

  int code() const { return code_; }
  bool Refuse(int code, const std::string& text);
  // A tensor of one of the three types; remembers its memory, which the second phase checks.
  const Tensor* Need(const char* name, const void* handle);
  bool NeedScalar(const void* handle, double* value);
  bool NeedSameShape(const Tensor& first, const Tensor& second);
  // Makes the executor, unless something was wrong.
  int Finish(std::function<void()> work, uint64_t workspace, uint64_t* size, void** executor);

 private:
  const char* const function_;
  std::vector<std::pair<const void*, size_t>> spans_;
  int code_;
};

// The second phase of any call.
int Launch(const char* function, void* workspace, uint64_t size, void* executor, void* stream);

}  // namespace collops_sim

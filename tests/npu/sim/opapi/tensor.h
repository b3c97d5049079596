#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "acl.h"

// What aclnn calls are given, and what they leave between their two phases.
namespace collops_sim {

enum AclnnStatus {
  kAclnnSuccess = 0,
  kAclnnNull = 161001,
  kAclnnInvalid = 161002,
  kAclnnInner = 561000,
};
enum AclType {
  kAclFloat = 0,
  kAclFloat16 = 1,
  kAclInt8 = 2,
  kAclInt32 = 3,
  kAclUint8 = 4,
  kAclInt16 = 6,
  kAclInt64 = 9,
  kAclDouble = 11,
  kAclBool = 12,
  kAclComplex64 = 16,
  kAclComplex128 = 17,
  kAclBFloat16 = 27,
};

// Holds any real element exactly; sums of two are then rounded once, to the result's type.
using Number = long double;
using Tensors = std::vector<const void*>;
using Integers = std::vector<int64_t>;

// Bytes of an element; 0 for types that are not simulated.
size_t ElementSize(int type);
Number Load(int type, const char* from);
// Rounds to the type.
void Store(int type, char* to, Number value);

// A view of device memory.
struct Tensor {
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;
  int type = kAclFloat;
  char* data = nullptr;    // of its first element
  uint64_t extent = 0;     // from there, in elements; 0 for an empty view
  bool is_inside = false;  // the view lies within its storage

  int64_t count() const;
  size_t element() const { return ElementSize(type); }
  // Elements in row-major order of the view.
  std::vector<float> Read() const;
  // Rounds each once, to the view's type.
  void Write(const std::vector<float>& values) const;
  // The same for elements of any real type.
  std::vector<Number> ReadNumbers() const;
  void WriteNumbers(const std::vector<Number>& values) const;
  // To the elements, which may lie on each other.
  void AddNumbers(const std::vector<Number>& values) const;
  // The bytes of every element.
  std::vector<std::string> ReadBytes() const;
  void WriteBytes(const std::vector<std::string>& values) const;
  // Whether it broadcasts to a shape, and the view of it that then has the shape.
  bool FitsOver(const std::vector<int64_t>& shape) const;
  Tensor Over(const std::vector<int64_t>& shape) const;
};

// Null for a handle that is none of ours, or was destroyed.
const Tensor* FindTensor(const void* handle);
// The scalar's value; false for a handle that is none of ours.
bool FindScalar(const void* handle, Number* value);
const Tensors* FindTensors(const void* handle);
const Integers* FindIntegers(const void* handle);

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
  // The same for every real type, and for every type that is simulated.
  const Tensor* NeedReal(const char* name, const void* handle);
  const Tensor* NeedAny(const char* name, const void* handle);
  bool NeedScalar(const void* handle, Number* value);
  bool NeedSameShape(const Tensor& first, const Tensor& second);
  // `from` broadcasts to the shape of `to`.
  bool NeedSpread(const Tensor& from, const Tensor& to);
  // Makes the executor, unless something was wrong.
  int Finish(std::function<void()> work, uint64_t workspace, uint64_t* size, void** executor);

 private:
  const char* const function_;
  std::vector<std::pair<const void*, size_t>> spans_;
  int code_;
};

// The second phase of any call.
int Launch(const char* function, void* workspace, uint64_t size, void* executor, void* stream);

// Defines the second phase of an operator.
#define COLLOPS_SIM_SECOND_PHASE(name)                                                \
  extern "C" int name(void* workspace, uint64_t size, void* executor, void* stream) { \
    return collops_sim::Launch(#name, workspace, size, executor, stream);             \
  }

}  // namespace collops_sim

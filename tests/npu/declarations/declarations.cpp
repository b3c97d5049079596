// Holds what the backend hccl declares of CANN against the headers in a torch_npu wheel. Only
// compiled: a difference is an error of the compiler. tools/cann_declarations.py writes declared.h,
// which includes the backend's headers, and compared.h, with a line for every name that the backend
// declares and the wheel has.
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "acl/acl.h"
#include "collops/core/dtype.h"
#include "declared.h"
#include "hccl/hccl.h"

// aclnn's objects are pointers without a type in the backend.
struct aclTensor;
struct aclScalar;

namespace {

using namespace collops::hccl;  // every name of ours below is from there

// How a type travels in a call: enumerations by their four bytes, pointers to the same by that.
// What a pointer may change counts for nothing: the wheels up to 2.8.0 have the V calls' buffers
// const.
template <typename Type>
struct Plain {
  using type = std::conditional_t<std::is_enum_v<Type>, std::tuple<int32_t>, std::tuple<Type>>;
};
template <typename Target>
struct Plain<Target*> {
  using type = std::tuple<typename Plain<std::remove_const_t<Target>>::type, int>;
};

template <>
struct Plain<aclTensor> {
  using type = Plain<void>::type;
};
template <>
struct Plain<aclScalar> {
  using type = Plain<void>::type;
};

// A struct of ours travels as that of CANN. Its fields are compared one by one; its room only if
// the wheel has all of them.
#define SAME_STRUCT(ours, theirs)    \
  template <>                        \
  struct Plain<ours> {               \
    using type = std::tuple<theirs>; \
  }

#define SAME_ROOM(ours, theirs) \
  static_assert(sizeof(ours) == sizeof(theirs) && alignof(ours) == alignof(theirs))

#define SAME_FIELD(ours, own_field, theirs, their_field)                      \
  static_assert(offsetof(ours, own_field) == offsetof(theirs, their_field) && \
                sizeof(ours::own_field) == sizeof(theirs::their_field))

template <typename Function>
struct Signature;
template <typename Result, typename... Arguments>
struct Signature<Result (*)(Arguments...)> {
  using type = std::tuple<typename Plain<Result>::type, typename Plain<Arguments>::type...>;
};

template <typename Ours, typename Theirs>
constexpr bool kSame =
    std::is_same_v<typename Signature<Ours>::type, typename Signature<Theirs>::type>;

template <typename Ours, typename Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  return static_cast<int64_t>(ours) == static_cast<int64_t>(theirs);
}

#define SAME_FUNCTION(member, function) static_assert(kSame<decltype(member), decltype(&function)>)
#define SAME_TYPEDEF(member, type) static_assert(kSame<decltype(member), type>)
#define SAME_TYPE(ours, theirs) static_assert(std::is_same_v<ours, theirs>)
#define SAME_SIZE(theirs) static_assert(sizeof(theirs) == sizeof(int32_t))
#define SAME_VALUE(ours, theirs) static_assert(Equal(ours, theirs))

using collops::DType;
using collops::Format;
#include "compared.h"

// The comparison can fail.
static_assert(!kSame<decltype(Api::record_event), decltype(&aclrtDestroyEvent)>);
static_assert(!Equal(DType::kFloat16, ACL_FLOAT));

}  // namespace

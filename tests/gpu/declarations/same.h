#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace declarations {

// Whether a declaration of ours and one of a header are the same to a compiled caller. For each
// comparison comparison.py writes how every type travels, and an assertion for every name that the
// library declares.

template <size_t kBytes, bool kSigned>
struct Number {};

// How a type travels in a call: numbers by size and sign, enumerations and structs by which of
// ours they are, pointers by what they point to; what a pointer may change counts for nothing.
template <typename Type>
struct Plain {
  using type = Type;
};
template <typename Type>
struct Plain<Type*> {
  using type = std::tuple<typename Plain<std::remove_const_t<Type>>::type>;
};
template <typename Result, typename... Arguments>
struct Plain<Result (*)(Arguments...)> {
  using type = std::tuple<Result, typename Plain<Arguments>::type...>;
};

template <typename Type>
constexpr auto Travelling() {
  if constexpr (std::is_enum_v<Type>) {
    return Number<sizeof(Type), true>();
  } else {
    return Number<sizeof(Type), std::is_signed_v<Type>>();
  }
}

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

template <typename Ours, typename Theirs>
constexpr bool kSameRoom = sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);

}  // namespace declarations

#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "collops/core/json_fwd.h"
#include "collops/core/status.h"

namespace collops {

// Writes and reads one value of a param struct: a pair of functions per C++ type. `where` names the
// value in messages ("AllGatherVParam: rankSize"). If null is written, the key is left out.

void WriteJson(bool value, Json* to);
void WriteJson(const std::string& value, Json* to);
void WriteJson(const std::vector<int64_t>& values, Json* to);
void WriteJson(const void* handle, Json* to);  // null: an address means nothing elsewhere

Status ReadJson(const Json& json, const std::string& where, bool* value);
Status ReadJson(const Json& json, const std::string& where, std::string* value);
Status ReadJson(const Json& json, const std::string& where, std::vector<int64_t>* values);
Status ReadJson(const Json& json, const std::string& where, void** handle);

void WriteInteger(int64_t value, Json* to);
Status ReadInteger(const Json& json, const std::string& where, int64_t lowest, int64_t highest,
                   int64_t* value);

// Reserved bytes: written only if one is not zero, and refused when read.
void WriteReserved(const uint8_t* bytes, size_t size, Json* to);
Status ReadReserved(const Json& json, const std::string& where, size_t size);

// Integers up to 64 bits, and enums as their numbers.
template <typename T>
using IfNumber =
    std::enable_if_t<(std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>>;

template <typename T, typename = IfNumber<T>>
void WriteJson(T value, Json* to) {
  WriteInteger(static_cast<int64_t>(value), to);
}

template <typename T, bool kIsEnum = std::is_enum_v<T>>
struct NumberOf {
  using Type = T;
};
template <typename T>
struct NumberOf<T, true> {
  using Type = std::underlying_type_t<T>;
};

template <typename T, typename = IfNumber<T>>
Status ReadJson(const Json& json, const std::string& where, T* value) {
  using Limits = std::numeric_limits<typename NumberOf<T>::Type>;
  int64_t number = 0;
  COLLOPS_RETURN_IF_ERROR(ReadInteger(json, where, Limits::min(), Limits::max(), &number));
  *value = static_cast<T>(number);
  return Ok();
}

template <size_t kSize>
void WriteJson(const uint8_t (&bytes)[kSize], Json* to) {
  WriteReserved(bytes, kSize, to);
}

template <size_t kSize>
Status ReadJson(const Json& json, const std::string& where, uint8_t (*)[kSize]) {
  return ReadReserved(json, where, kSize);
}

}  // namespace collops

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "collops/core/json_fwd.h"
#include "collops/core/status.h"
#include "collops/operators/params.h"

namespace collops {

// The fields of ATB's parameter structs as tables, from which == and JSON are made.

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

// One field of a struct that is known by its address: the JSON key, and how to compare, write and
// read the value. Only what is written here is compiled once per struct.
struct FieldRow {
  const char* key;
  bool (*same)(const void* a, const void* b);
  void (*write)(const void* from, Json* to);
  Status (*read)(const Json& json, const std::string& where, void* to);
};
struct FieldTable {
  const char* name;  // of the struct, for messages
  std::vector<FieldRow> rows;
};

bool SameFields(const FieldTable& table, const void* a, const void* b);
void WriteFields(const FieldTable& table, const void* from, Json* to);
std::string WriteText(const FieldTable& table, const void* from);
// Missing keys leave what is in the struct. `where` names it in messages.
Status ReadFields(const FieldTable& table, const Json& object, const char* where, void* to);
Status ReadText(const FieldTable& table, const std::string& text, void* to);

template <typename Value>
bool SameValue(const Value& a, const Value& b) {
  return a == b;
}
template <size_t kSize>
bool SameValue(const uint8_t (&a)[kSize], const uint8_t (&b)[kSize]) {
  return std::equal(a, a + kSize, b);
}

// The table of a struct, whose fields are added in ATB's order.
template <typename Struct>
struct StructFields {
  explicit StructFields(const char* struct_name) : table{struct_name, {}} {}

  template <auto kMember>
  StructFields& Add(const char* key) {
    table.rows.push_back({key,
                          [](const void* a, const void* b) {
                            return SameValue(static_cast<const Struct*>(a)->*kMember,
                                             static_cast<const Struct*>(b)->*kMember);
                          },
                          [](const void* from, Json* to) {
                            WriteJson(static_cast<const Struct*>(from)->*kMember, to);
                          },
                          [](const Json& json, const std::string& where, void* to) {
                            return ReadJson(json, where, &(static_cast<Struct*>(to)->*kMember));
                          }});
    return *this;
  }

  // Fields of all of ATB's structs. Some have `backend` after commMode.
  StructFields& AddRank() {
    Add<&Struct::rank>("rank").template Add<&Struct::rankSize>("rankSize");
    return Add<&Struct::rankRoot>("rankRoot");
  }
  StructFields& AddCommunicator(bool backend_first = true) {
    if (backend_first) Add<&Struct::backend>("backend");
    Add<&Struct::hcclComm>("hcclComm").template Add<&Struct::commMode>("commMode");
    if (!backend_first) Add<&Struct::backend>("backend");
    Add<&Struct::rankTableFile>("rankTableFile");
    return Add<&Struct::commDomain>("commDomain");
  }

  FieldTable table;
};

// The table of a struct, in the .cpp of its operator.
template <typename Struct>
const FieldTable& FieldsOf();

template <typename Struct>
bool SameFields(const Struct& a, const Struct& b) {
  return SameFields(FieldsOf<Struct>(), &a, &b);
}

template <typename Struct>
void WriteObject(const Struct& from, Json* to) {
  WriteFields(FieldsOf<Struct>(), &from, to);
}

// Missing keys leave the struct's defaults. `to` changes only on success.
template <typename Struct>
Status ReadObject(const Json& object, const char* where, Struct* to) {
  Struct read;
  COLLOPS_RETURN_IF_ERROR(ReadFields(FieldsOf<Struct>(), object, where, &read));
  *to = read;
  return Ok();
}

// Of ParamFunctions, which each operator's .cpp instantiates.
template <typename Param>
bool ParamFunctions<Param>::Equal(const Param& a, const Param& b) {
  return SameFields(a, b);
}

template <typename Param>
std::string ParamFunctions<Param>::ToJson(const Param& param) {
  return WriteText(FieldsOf<Param>(), &param);
}

template <typename Param>
Status ParamFunctions<Param>::FromJson(const std::string& text, Param* param) {
  Param read;
  COLLOPS_RETURN_IF_ERROR(ReadText(FieldsOf<Param>(), text, &read));
  *param = read;
  return Ok();
}

}  // namespace collops

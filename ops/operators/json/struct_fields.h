#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "operators/framework/param.h"
#include "operators/json/json_value.h"

namespace collops {

// One field of a struct: its JSON key, and how to compare, write and read its value.
template <typename Struct>
struct StructField {
  const char* key;
  bool (*same)(const Struct& a, const Struct& b);
  Json (*write)(const Struct& from);
  Status (*read)(const Json& json, const std::string& where, Struct* to);
};

template <typename Value>
bool SameValue(const Value& a, const Value& b) {
  return a == b;
}
template <size_t kSize>
bool SameValue(const uint8_t (&a)[kSize], const uint8_t (&b)[kSize]) {
  return std::equal(a, a + kSize, b);
}

// Fields that stand one after the other in a struct.
template <typename Struct>
using FieldRun = std::vector<StructField<Struct>>;

// All fields of a struct, in its order, and its name for messages.
template <typename Struct>
struct StructFields {
  // Each part is a field or a run of fields.
  template <typename... Parts>
  StructFields(const char* struct_name, const Parts&... parts) : name(struct_name) {
    (Add(parts), ...);
  }

  void Add(const StructField<Struct>& field) { fields.push_back(field); }
  void Add(const FieldRun<Struct>& run) { fields.insert(fields.end(), run.begin(), run.end()); }

  const char* name;
  FieldRun<Struct> fields;
};

// The field table of a struct, in the .cpp beside it.
template <typename Struct>
const StructFields<Struct>& FieldsOf();

// The field of a data member: Field<&AllGatherVParam::rank>("rank").
template <auto kMember>
struct MemberOf;
template <typename Owner, typename Value, Value Owner::* kMember>
struct MemberOf<kMember> {
  using Struct = Owner;
};

template <auto kMember, typename Struct = typename MemberOf<kMember>::Struct>
StructField<Struct> Field(const char* key) {
  return {key, [](const Struct& a, const Struct& b) { return SameValue(a.*kMember, b.*kMember); },
          [](const Struct& from) { return WriteJson(from.*kMember); },
          [](const Json& json, const std::string& where, Struct* to) {
            return ReadJson(json, where, &(to->*kMember));
          }};
}

// The runs that ATB's structs have in common: the rank, and its communicator. Some structs have
// `backend` after commMode.
template <typename P>
FieldRun<P> RankFields() {
  return {Field<&P::rank>("rank"), Field<&P::rankSize>("rankSize"),
          Field<&P::rankRoot>("rankRoot")};
}

template <typename P>
FieldRun<P> CommunicatorFields(bool backend_first = true) {
  FieldRun<P> run = {Field<&P::hcclComm>("hcclComm"), Field<&P::commMode>("commMode"),
                     Field<&P::rankTableFile>("rankTableFile"),
                     Field<&P::commDomain>("commDomain")};
  run.insert(run.begin() + (backend_first ? 0 : 2), Field<&P::backend>("backend"));
  return run;
}

// Parses the text; an error says where it is malformed.
Status ParseText(const std::string& text, const char* struct_name, Json* json);

// ERROR_INVALID_PARAM that names the key, the struct, and the known key that is closest.
Status UnknownKey(const std::string& key, const char* struct_name,
                  const std::vector<std::string>& known);

// ERROR_INVALID_PARAM unless the value is an object.
Status CheckObject(const Json& json, const char* name);

template <typename Struct>
bool SameFields(const Struct& a, const Struct& b) {
  const auto& fields = FieldsOf<Struct>().fields;
  return std::all_of(fields.begin(), fields.end(),
                     [&](const StructField<Struct>& field) { return field.same(a, b); });
}

template <typename Struct>
Json WriteObject(const Struct& from) {
  Json object = Json::object();
  for (const StructField<Struct>& field : FieldsOf<Struct>().fields) {
    Json value = field.write(from);
    if (!value.is_null()) object[field.key] = std::move(value);
  }
  return object;
}

// `where` names the struct in messages.
template <typename Struct>
Status ReadField(const std::string& key, const Json& json, const char* where, Struct* to) {
  std::vector<std::string> known;
  for (const StructField<Struct>& field : FieldsOf<Struct>().fields) {
    if (key == field.key) return field.read(json, Concat(where, ": ", key), to);
    known.push_back(field.key);
  }
  return UnknownKey(key, where, known);
}

// Missing keys leave the struct's defaults. `to` changes only on success.
template <typename Struct>
Status ReadObject(const Json& object, const char* where, Struct* to) {
  RETURN_IF_ERROR(CheckObject(object, where));
  Struct read;
  for (const auto& [key, value] : object.items()) {
    RETURN_IF_ERROR(ReadField(key, value, where, &read));
  }
  *to = read;
  return Ok();
}

// The functions declared in framework/param.h; each struct's .cpp instantiates them.
template <typename Param, typename>
bool operator==(const Param& a, const Param& b) {
  return SameFields(a, b);
}

template <typename Param>
std::string ToJson(const Param& param) {
  return WriteObject(param).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Param>
Status FromJson(const std::string& text, Param* param) {
  const char* const name = FieldsOf<Param>().name;
  Json object;
  RETURN_IF_ERROR(ParseJson(text, name, &object));
  return ReadObject(object, name, param);
}

}  // namespace collops

#pragma once

#include <string>
#include <vector>

#include "operators/json_value.h"

namespace collops {

// One key of a struct's JSON: its name, and how its value is written and read.
template <typename Struct>
struct JsonField {
  const char* key;
  Json (*write)(const Struct& from);
  Status (*read)(const Json& json, const std::string& where, Struct* to);
};

// The field of a data member: Field<&AllGatherVParam::rank>("rank").
template <auto kMember>
struct MemberOf;
template <typename Owner, typename Value, Value Owner::* kMember>
struct MemberOf<kMember> {
  using Struct = Owner;
};

template <auto kMember, typename Struct = typename MemberOf<kMember>::Struct>
JsonField<Struct> Field(const char* key) {
  return {key, [](const Struct& from) { return WriteJson(from.*kMember); },
          [](const Json& json, const std::string& where, Struct* to) {
            return ReadJson(json, where, &(to->*kMember));
          }};
}

// The text as one JSON value; a message says where it is malformed.
Status ParseText(const std::string& text, const char* struct_name, Json* json);

// ERROR_INVALID_PARAM that names the key, the struct and the key that was probably meant.
Status UnknownKey(const std::string& key, const char* struct_name,
                  const std::vector<std::string>& known);

// ERROR_INVALID_PARAM unless the value is an object.
Status CheckObject(const Json& json, const char* name);

template <typename Struct>
Json WriteObject(const Struct& from, const std::vector<JsonField<Struct>>& fields) {
  Json object = Json::object();
  for (const JsonField<Struct>& field : fields) {
    Json value = field.write(from);
    if (!value.is_null()) object[field.key] = std::move(value);
  }
  return object;
}

template <typename Struct>
std::string WriteStruct(const Struct& from, const std::vector<JsonField<Struct>>& fields) {
  return WriteObject(from, fields).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename Struct>
Status ReadField(const std::string& key, const Json& json, const char* struct_name,
                 const std::vector<JsonField<Struct>>& fields, Struct* to) {
  std::vector<std::string> known;
  for (const JsonField<Struct>& field : fields) {
    if (key == field.key) return field.read(json, Concat(struct_name, ": ", key), to);
    known.push_back(field.key);
  }
  return UnknownKey(key, struct_name, known);
}

// Keys that are not there keep the struct's defaults. `to` changes only on success.
template <typename Struct>
Status ReadObject(const Json& object, const char* struct_name,
                  const std::vector<JsonField<Struct>>& fields, Struct* to) {
  RETURN_IF_ERROR(CheckObject(object, struct_name));
  Struct read;
  for (const auto& [key, value] : object.items()) {
    RETURN_IF_ERROR(ReadField(key, value, struct_name, fields, &read));
  }
  *to = read;
  return Ok();
}

template <typename Struct>
Status ReadStruct(const std::string& text, const char* struct_name,
                  const std::vector<JsonField<Struct>>& fields, Struct* to) {
  Json object;
  RETURN_IF_ERROR(ParseText(text, struct_name, &object));
  return ReadObject(object, struct_name, fields, to);
}

}  // namespace collops

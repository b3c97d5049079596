#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "collops/operators/framework/param.h"
#include "collops/operators/json/json_value.h"

namespace collops {

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

// A row of this struct's table.
template <typename Struct>
struct StructField {
  FieldRow row;
};
// Fields that stand one after the other in a struct.
template <typename Struct>
using FieldRun = std::vector<StructField<Struct>>;

// All fields of a struct, in its order, and its name for messages.
template <typename Struct>
struct StructFields {
  // Each part is a field or a run of fields.
  template <typename... Parts>
  StructFields(const char* struct_name, const Parts&... parts) : table{struct_name, {}} {
    (Add(parts), ...);
  }

  void Add(const StructField<Struct>& field) { table.rows.push_back(field.row); }
  void Add(const FieldRun<Struct>& run) {
    for (const StructField<Struct>& field : run) Add(field);
  }

  FieldTable table;
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
  return {{key,
           [](const void* a, const void* b) {
             return SameValue(static_cast<const Struct*>(a)->*kMember,
                              static_cast<const Struct*>(b)->*kMember);
           },
           [](const void* from, Json* to) {
             WriteJson(static_cast<const Struct*>(from)->*kMember, to);
           },
           [](const Json& json, const std::string& where, void* to) {
             return ReadJson(json, where, &(static_cast<Struct*>(to)->*kMember));
           }}};
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

template <typename Struct>
bool SameFields(const Struct& a, const Struct& b) {
  return SameFields(FieldsOf<Struct>().table, &a, &b);
}

template <typename Struct>
void WriteObject(const Struct& from, Json* to) {
  WriteFields(FieldsOf<Struct>().table, &from, to);
}

// Missing keys leave the struct's defaults. `to` changes only on success.
template <typename Struct>
Status ReadObject(const Json& object, const char* where, Struct* to) {
  Struct read;
  COLLOPS_RETURN_IF_ERROR(ReadFields(FieldsOf<Struct>().table, object, where, &read));
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
  return WriteText(FieldsOf<Param>().table, &param);
}

template <typename Param>
Status FromJson(const std::string& text, Param* param) {
  Param read;
  COLLOPS_RETURN_IF_ERROR(ReadText(FieldsOf<Param>().table, text, &read));
  *param = read;
  return Ok();
}

}  // namespace collops

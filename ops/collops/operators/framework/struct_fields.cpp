#include "collops/operators/framework/struct_fields.h"

#include <cctype>
#include <utility>

#include "collops/core/json.h"

namespace collops {
namespace {

Status WrongValue(const Json& json, const std::string& where, const std::string& expected) {
  return Error(ERROR_INVALID_PARAM, where, " must be ", expected, ", got ", ShowJson(json));
}

// JSON may hold an unsigned number that exceeds int64_t.
bool IsInt64(const Json& json) {
  if (json.is_number_unsigned()) {
    return json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }
  return json.is_number_integer();
}

// Removes case and underscores, so that "rank_size" and "ranksize" are closest to "rankSize".
std::string Plain(const std::string& key) {
  std::string plain;
  for (const char c : key) {
    if (c != '_') plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return plain;
}

// The number of letters to insert, delete or replace to turn `a` into `b`.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string Nearest(const std::string& key, const std::vector<std::string>& known) {
  const std::string plain = Plain(key);
  const auto distance = [&plain](const std::string& other) {
    return EditDistance(plain, Plain(other));
  };
  return *std::min_element(known.begin(), known.end(),
                           [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
}

// ERROR_INVALID_PARAM that names the key, the struct, and the known key that is closest.
Status UnknownKey(const std::string& key, const char* struct_name,
                  const std::vector<std::string>& known) {
  constexpr size_t kMaxKey = 100;
  const std::string start = key.substr(0, kMaxKey);
  const std::string shown = Json(start).dump(-1, ' ', true, Json::error_handler_t::replace);
  return Error(ERROR_INVALID_PARAM, struct_name, ": unknown key ", shown,
               "; the nearest known key is \"", Nearest(start, known), "\"");
}

Status ReadField(const FieldTable& table, const std::string& key, const Json& json,
                 const char* where, void* to) {
  std::vector<std::string> known;
  for (const FieldRow& row : table.rows) {
    if (key == row.key) return row.read(json, Concat(where, ": ", key), to);
    known.emplace_back(row.key);
  }
  return UnknownKey(key, where, known);
}

}  // namespace

void WriteJson(bool value, Json* to) {
  *to = value;
}

void WriteJson(const std::string& value, Json* to) {
  *to = value;
}

void WriteJson(const std::vector<int64_t>& values, Json* to) {
  *to = values;
}

void WriteJson(const void* /*handle*/, Json* to) {
  *to = nullptr;
}

void WriteReserved(const uint8_t* bytes, size_t size, Json* to) {
  *to = nullptr;
  if (std::all_of(bytes, bytes + size, [](uint8_t byte) { return byte == 0; })) return;
  *to = std::vector<int>(bytes, bytes + size);
}

void WriteInteger(int64_t value, Json* to) {
  *to = value;
}

Status ReadInteger(const Json& json, const std::string& where, int64_t lowest, int64_t highest,
                   int64_t* value) {
  if (IsInt64(json)) *value = json.get<int64_t>();
  if (!IsInt64(json) || *value < lowest || *value > highest) {
    return WrongValue(json, where, Concat("an integer from ", lowest, " to ", highest));
  }
  return Ok();
}

Status ReadJson(const Json& json, const std::string& where, bool* value) {
  if (!json.is_boolean()) return WrongValue(json, where, "true or false");
  *value = json.get<bool>();
  return Ok();
}

Status ReadJson(const Json& json, const std::string& where, std::string* value) {
  if (!json.is_string()) return WrongValue(json, where, "a string");
  *value = json.get<std::string>();
  return Ok();
}

Status ReadJson(const Json& json, const std::string& where, std::vector<int64_t>* values) {
  if (!json.is_array()) return WrongValue(json, where, "an array of integers");
  values->clear();
  for (size_t i = 0; i < json.size(); ++i) {
    int64_t value = 0;
    COLLOPS_RETURN_IF_ERROR(ReadJson(json[i], Concat(where, "[", i, "]"), &value));
    values->push_back(value);
  }
  return Ok();
}

Status ReadJson(const Json& json, const std::string& where, void** handle) {
  if (!json.is_null() && json != 0) {
    return WrongValue(json, where,
                      "left out or 0, a communicator cannot be stored: set it after reading");
  }
  *handle = nullptr;
  return Ok();
}

Status ReadReserved(const Json& json, const std::string& where, size_t size) {
  if (!json.is_array()) return WrongValue(json, where, "an array of zeros");
  COLLOPS_CHECK_ARG(json.size() <= size, ERROR_INVALID_PARAM, where, " must have at most ", size,
                    " bytes, got ", json.size());
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_number() || json[i] != 0) {
      return WrongValue(json[i], Concat(where, "[", i, "]"), "0, the bytes are reserved");
    }
  }
  return Ok();
}

bool SameFields(const FieldTable& table, const void* a, const void* b) {
  return std::all_of(table.rows.begin(), table.rows.end(),
                     [&](const FieldRow& row) { return row.same(a, b); });
}

void WriteFields(const FieldTable& table, const void* from, Json* to) {
  *to = Json::object();
  for (const FieldRow& row : table.rows) {
    Json value;
    row.write(from, &value);
    if (!value.is_null()) (*to)[row.key] = std::move(value);
  }
}

std::string WriteText(const FieldTable& table, const void* from) {
  Json object;
  WriteFields(table, from, &object);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status ReadFields(const FieldTable& table, const Json& object, const char* where, void* to) {
  COLLOPS_CHECK_ARG(object.is_object(), ERROR_INVALID_PARAM, where, " must be an object, got ",
                    object.type_name());
  for (const auto& [key, value] : object.items()) {
    COLLOPS_RETURN_IF_ERROR(ReadField(table, key, value, where, to));
  }
  return Ok();
}

Status ReadText(const FieldTable& table, const std::string& text, void* to) {
  Json object;
  COLLOPS_RETURN_IF_ERROR(ParseJson(text, table.name, &object));
  return ReadFields(table, object, table.name, to);
}

}  // namespace collops

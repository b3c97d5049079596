#include "collops/operators/json/json_value.h"

#include <algorithm>

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

}  // namespace collops

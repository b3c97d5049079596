#include "collops/comm/placement/rank_table/table_value.h"

#include <algorithm>
#include <charconv>

#include "collops/core/json.h"

namespace collops::rank_table {
namespace {

bool IsDigits(const std::string& text) {
  return !text.empty() && text.size() <= 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Bytes below the space, such as NUL, are in no name or address.
bool IsPrintable(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) > ' ' && c != '\x7f'; });
}

}  // namespace

std::string TableValue::PathOf(const char* key) const {
  return path_.empty() ? std::string(key) : path_ + "." + key;
}

Status TableValue::MustBe(const std::string& rule) const {
  return Wrong(" must be ", rule, ", got ", ShowJson(*json_));
}

bool TableValue::Has(const char* key) const {
  return json_->is_object() && json_->contains(key);
}

Status TableValue::Get(const char* key, TableValue* member) const {
  if (!json_->is_object()) {
    return path_.empty() ? Wrong("the table must be an object, got ", ShowJson(*json_))
                         : MustBe("an object");
  }
  const auto found = json_->find(key);
  if (found == json_->end()) {
    return Error(ERROR_INVALID_PARAM, file_, ": ", PathOf(key), " is missing");
  }
  *member = TableValue(*found, file_, PathOf(key));
  return Ok();
}

Status TableValue::List(const char* key, std::vector<TableValue>* entries) const {
  TableValue list;
  COLLOPS_RETURN_IF_ERROR(Get(key, &list));
  if (!list.json_->is_array()) return list.MustBe("an array");
  if (list.json_->empty()) return list.Wrong(" is empty, it must have an entry");
  entries->clear();
  for (const Json& entry : *list.json_) {
    entries->push_back(TableValue(entry, file_, Concat(list.path_, "[", entries->size(), "]")));
  }
  return Ok();
}

Status TableValue::Text(const char* key, std::string* text) const {
  constexpr size_t kMaxLength = 64;
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  if (!member.json_->is_string()) return member.MustBe("a string");
  *text = member.json_->get<std::string>();
  if (text->empty() || text->size() > kMaxLength || !IsPrintable(*text)) {
    return member.MustBe(Concat("1 to ", kMaxLength, " characters without spaces"));
  }
  return Ok();
}

Status TableValue::OptionalText(const char* key, std::string* text) const {
  text->clear();
  TableValue member;
  if (!Has(key)) return Ok();
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  return *member.json_ == "" ? Ok() : Text(key, text);
}

Status TableValue::Number(const char* key, int64_t lowest, int64_t highest, int64_t* number,
                          bool digits) const {
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  const Json& json = *member.json_;
  bool is_number = json.is_number_integer();
  if (digits) {
    is_number = json.is_string() && IsDigits(json.get_ref<const std::string&>());
    *number = is_number ? std::stoll(json.get_ref<const std::string&>()) : 0;
  } else if (is_number) {
    // What is past int64 is past every limit.
    const bool fits = !json.is_number_unsigned() || json.get<uint64_t>() <= INT64_MAX;
    *number = fits ? json.get<int64_t>() : INT64_MAX;
  }
  if (!is_number || *number < lowest || *number > highest) {
    return member.MustBe(
        Concat("a ", digits ? "string of digits" : "number", ", ", lowest, " to ", highest));
  }
  return Ok();
}

Status TableValue::Count(const char* key, size_t length, const char* list, bool digits) const {
  if (!Has(key)) return Ok();
  int64_t count = 0;
  COLLOPS_RETURN_IF_ERROR(Number(key, 0, INT64_MAX, &count, digits));
  TableValue member;
  COLLOPS_RETURN_IF_ERROR(Get(key, &member));
  if (count == static_cast<int64_t>(length)) return Ok();
  return member.Wrong(" is ", count, ", but ", PathOf(list), " has length ", length);
}

}  // namespace collops::rank_table

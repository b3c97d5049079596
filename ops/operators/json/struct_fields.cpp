#include "operators/json/struct_fields.h"

#include <algorithm>
#include <cctype>

namespace collops {
namespace {

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

}  // namespace

Status UnknownKey(const std::string& key, const char* struct_name,
                  const std::vector<std::string>& known) {
  constexpr size_t kMaxKey = 100;
  const std::string start = key.substr(0, kMaxKey);
  const std::string shown = Json(start).dump(-1, ' ', true, Json::error_handler_t::replace);
  return Error(ERROR_INVALID_PARAM, struct_name, ": unknown key ", shown,
               "; the nearest known key is \"", Nearest(start, known), "\"");
}

Status CheckObject(const Json& json, const char* name) {
  CHECK_ARG(json.is_object(), ERROR_INVALID_PARAM, name, " must be an object, got ",
            json.type_name());
  return Ok();
}

}  // namespace collops

#include "collops/core/json.h"

#include <algorithm>

namespace collops {
namespace {

// "line 2, column 7" of the byte at `position`, both from 1.
std::string LineAndColumn(const std::string& text, size_t position) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(position, text.size()));
  const auto lines = std::count(text.begin(), end, '\n');
  const size_t newline = text.substr(0, position).rfind('\n');
  const size_t column = newline == std::string::npos ? position + 1 : position - newline;
  return Concat("line ", lines + 1, ", column ", column);
}

}  // namespace

Status ParseJson(const std::string& text, const std::string& name, Json* json,
                 const Json::parser_callback_t& watch) {
  try {
    *json = Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    // The parser counts bytes from 1 and says 0 for an empty text.
    const size_t position = error.byte == 0 ? 0 : error.byte - 1;
    return Error(ERROR_INVALID_PARAM, name, ": malformed JSON at ", LineAndColumn(text, position),
                 " (byte ", position, " of ", text.size(), ")");
  } catch (const Json::exception&) {
    return Error(ERROR_INVALID_PARAM, name, ": the JSON text has a number that is out of range");
  }
  return Ok();
}

std::string ShowJson(const Json& json) {
  constexpr size_t kMaxShown = 60;
  if (json.is_structured()) return json.type_name();
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return text;
}

}  // namespace collops

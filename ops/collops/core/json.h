#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "collops/core/json_fwd.h"
#include "collops/core/status.h"

namespace collops {

// Parses `text`; an error says what is parsed (`name`) and where it is malformed. With `watch` the
// parser tells of everything it meets, and drops what `watch` returns false for.
Status ParseJson(const std::string& text, const std::string& name, Json* json,
                 const Json::parser_callback_t& watch = nullptr);

// A value for a message, at most 60 characters. Of an array or object only the type: writing it
// out would recurse as deep as the text goes.
std::string ShowJson(const Json& json);

}  // namespace collops

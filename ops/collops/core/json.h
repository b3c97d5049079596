#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "collops/core/json_fwd.h"
#include "collops/core/status.h"

namespace collops {

// Parses `text`; an error says what is parsed (`name`), the line and column of the first fault, and
// what it is. A key that an object has twice is one, and so is nesting past any text that is read.
Status ParseJson(const std::string& text, const std::string& name, Json* json);

// A value for a message, at most 60 characters. Of an array or object only the type: writing it
// out would recurse as deep as the text goes.
std::string ShowJson(const Json& json);

}  // namespace collops

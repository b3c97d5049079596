#pragma once

#include <nlohmann/json_fwd.hpp>

// The name alone: the whole of nlohmann/json.hpp takes seconds to compile.
namespace collops {

// Keeps the order of the keys: a text that is written lists a struct's fields in their order.
using Json = nlohmann::ordered_json;

}  // namespace collops

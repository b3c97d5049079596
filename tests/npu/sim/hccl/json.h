#pragma once

#include <map>
#include <string>
#include <vector>

// As much of JSON as rank tables have.
namespace collops_sim {

struct Json {
  enum Kind { kString, kOther, kObject, kArray };

  Kind kind = kOther;  // numbers, true, false and null are not told apart
  std::string text;
  std::map<std::string, Json> members;
  std::vector<Json> items;

  // False if the text is none.
  static bool Parse(const std::string& text, Json* result);

  // Null if there is none.
  const Json* Find(const std::string& name) const;
};

}  // namespace collops_sim

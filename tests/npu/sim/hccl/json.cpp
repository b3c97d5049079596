#include "json.h"

#include <cctype>
#include <cstring>

namespace collops_sim {
namespace {

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  bool Value(Json* result) {
    switch (Peek()) {
      case '{':
        return Object(result);
      case '[':
        return Array(result);
      case '"':
        result->kind = Json::kString;
        return String(&result->text);
      default:
        return Other(result);
    }
  }
  bool AtEnd() { return Peek() == '\0' && at_ >= text_.size(); }

 private:
  char Peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char wanted) {
    if (Peek() != wanted) return false;
    ++at_;
    return true;
  }
  bool Object(Json* result) {
    result->kind = Json::kObject;
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string name;
      if (Peek() != '"' || !String(&name) || !Take(':')) return false;
      if (!Value(&result->members[name])) return false;
    } while (Take(','));
    return Take('}');
  }
  bool Array(Json* result) {
    result->kind = Json::kArray;
    if (!Take('[')) return false;
    if (Take(']')) return true;
    do {
      if (!Value(&result->items.emplace_back())) return false;
    } while (Take(','));
    return Take(']');
  }
  // Escapes are kept as they are: no field of a rank table needs one.
  bool String(std::string* result) {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') *result += text_[at_++];
      if (at_ < text_.size()) *result += text_[at_];
    }
    return Take('"');
  }
  bool Other(Json* result) {
    result->kind = Json::kOther;
    const size_t begin = at_;
    while (at_ < text_.size() && std::strchr("+-.", text_[at_]) != nullptr) ++at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '.')) {
      ++at_;
    }
    return at_ > begin;
  }

  const std::string& text_;
  size_t at_ = 0;
};

}  // namespace

bool Json::Parse(const std::string& text, Json* result) {
  Parser parser(text);
  return parser.Value(result) && parser.AtEnd();
}

const Json* Json::Find(const std::string& name) const {
  const auto found = members.find(name);
  return found == members.end() ? nullptr : &found->second;
}

}  // namespace collops_sim

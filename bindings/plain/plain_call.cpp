#include "plain/plain_call.h"

#include <algorithm>
#include <set>

namespace collops::bindings {
const char* LastingName(const std::string& name) {
  // Never destroyed: calls may still run while static objects go. Guarded by the GIL.
  static auto* const names = new std::set<std::string>;
  return names->insert(name).first->c_str();
}

const char* MethodOf(const std::string& operation) {
  const size_t end = std::min(operation.find(' '), operation.size());
  std::string method;
  for (size_t i = 0; i < end; ++i) {
    const char c = operation[i];
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && i > 0 && c != 'V') method += '_';
    method += is_upper ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return LastingName(method + operation.substr(end));
}

}  // namespace collops::bindings

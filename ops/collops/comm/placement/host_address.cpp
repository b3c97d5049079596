#include "collops/comm/placement/host_address.h"

#include <arpa/inet.h>

#include <utility>

namespace collops {

bool ParseAddress(const std::string& text, HostAddress* address) {
  for (const auto& [family, size] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    char bytes[16];
    if (inet_pton(family, text.c_str(), bytes) != 1) continue;
    address->assign(bytes, static_cast<size_t>(size));
    return true;
  }
  return false;
}

}  // namespace collops

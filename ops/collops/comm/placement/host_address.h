#pragma once

#include <arpa/inet.h>

#include <string>
#include <utility>

namespace collops {

// The bytes of an IPv4 (4) or IPv6 (16) address, so that two spellings are equal.
using HostAddress = std::string;

// False for what is no address, such as a host's name.
inline bool ParseAddress(const std::string& text, HostAddress* address) {
  for (const auto& [family, size] : {std::pair(AF_INET, 4), std::pair(AF_INET6, 16)}) {
    char bytes[16];
    if (inet_pton(family, text.c_str(), bytes) != 1) continue;
    address->assign(bytes, static_cast<size_t>(size));
    return true;
  }
  return false;
}

}  // namespace collops

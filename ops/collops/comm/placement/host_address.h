#pragma once

#include <string>

namespace collops {

// The bytes of an IPv4 (4) or IPv6 (16) address, so that two spellings are equal.
using HostAddress = std::string;

// False for what is no address, such as a host's name.
bool ParseAddress(const std::string& text, HostAddress* address);

}  // namespace collops

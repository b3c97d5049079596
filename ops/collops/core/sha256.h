#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace collops {

using Digest = std::array<uint8_t, 32>;

// SHA-256 (FIPS 180-4), and HMAC with it (RFC 2104).
Digest Sha256(const std::string& text);
Digest HmacSha256(const std::string& key, const std::string& text);

// Lower-case hexadecimal digits.
std::string Hex(const Digest& digest);

// Takes as long whether and wherever they differ, so that a stranger learns nothing by trying.
bool SameDigest(const Digest& a, const Digest& b);

}  // namespace collops

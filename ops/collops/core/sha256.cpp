#include "collops/core/sha256.h"

#include <cstddef>

namespace collops {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kWords = 64;

using State = std::array<uint32_t, 8>;

// FIPS 180-4: the first 32 bits of the fractional parts of the square roots of the first 8 primes,
// and of the cube roots of the first 64.
constexpr State kStart = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};
constexpr std::array<uint32_t, kWords> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

uint32_t RotateRight(uint32_t word, unsigned bits) {
  return (word >> bits) | (word << (32 - bits));
}

void AddBlock(const uint8_t* block, State* state) {
  std::array<uint32_t, kWords> w{};
  for (size_t i = 0; i < 16; ++i) {
    for (size_t byte = 0; byte < 4; ++byte) w[i] = (w[i] << 8) | block[4 * i + byte];
  }
  for (size_t i = 16; i < kWords; ++i) {
    const uint32_t a = w[i - 15];
    const uint32_t b = w[i - 2];
    w[i] = w[i - 16] + (RotateRight(a, 7) ^ RotateRight(a, 18) ^ (a >> 3)) + w[i - 7] +
           (RotateRight(b, 17) ^ RotateRight(b, 19) ^ (b >> 10));
  }
  State s = *state;
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    const uint32_t first = s[7] + choice + kRounds[i] + w[i] +
                           (RotateRight(s[4], 6) ^ RotateRight(s[4], 11) ^ RotateRight(s[4], 25));
    const uint32_t second =
        majority + (RotateRight(s[0], 2) ^ RotateRight(s[0], 13) ^ RotateRight(s[0], 22));
    s = {first + second, s[0], s[1], s[2], s[3] + first, s[4], s[5], s[6]};
  }
  for (size_t i = 0; i < s.size(); ++i) (*state)[i] += s[i];
}

// The end of the text: a bit, zeros, and the text's length in bits.
std::string Padding(size_t text_bytes) {
  std::string padding(1, '\x80');
  while ((text_bytes + padding.size()) % kBlockBytes != kBlockBytes - 8) padding += '\0';
  const uint64_t bits = uint64_t{text_bytes} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) padding += static_cast<char>(bits >> shift);
  return padding;
}

}  // namespace

Digest Sha256(const std::string& text) {
  State state = kStart;
  const auto add = [&](const std::string& part, size_t begin) {
    for (; begin + kBlockBytes <= part.size(); begin += kBlockBytes) {
      AddBlock(reinterpret_cast<const uint8_t*>(part.data()) + begin, &state);
    }
    return begin;
  };
  const size_t whole = add(text, 0);
  add(text.substr(whole) + Padding(text.size()), 0);
  Digest digest{};
  for (size_t i = 0; i < digest.size(); ++i) {
    digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  }
  return digest;
}

Digest HmacSha256(const std::string& key, const std::string& text) {
  std::string block = key;
  const auto as_text = [](const Digest& digest) {
    return std::string(digest.begin(), digest.end());
  };
  if (block.size() > kBlockBytes) block = as_text(Sha256(key));
  block.resize(kBlockBytes);
  std::string inner = block;
  std::string outer = block;
  for (char& c : inner) c = static_cast<char>(c ^ 0x36);
  for (char& c : outer) c = static_cast<char>(c ^ 0x5c);
  return Sha256(outer + as_text(Sha256(inner + text)));
}

std::string Hex(const Digest& digest) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool SameDigest(const Digest& a, const Digest& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace collops

#include "collops/core/sha256.h"

#include <cmath>
#include <cstddef>

namespace collops {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kWords = 64;

using State = std::array<uint32_t, 8>;

// The constants are the first 32 bits of the fractional parts of the roots of the first primes,
// square roots to begin with and cube roots for the rounds; a double holds more bits than that.
struct Constants {
  State start{};
  std::array<uint32_t, kWords> rounds{};

  Constants() {
    size_t count = 0;
    for (int number = 2; count < kWords; ++number) {
      if (!IsPrime(number)) continue;
      if (count < start.size()) start[count] = Fraction(std::sqrt(number));
      rounds[count++] = Fraction(std::cbrt(number));
    }
  }

  static bool IsPrime(int number) {
    for (int divisor = 2; divisor * divisor <= number; ++divisor) {
      if (number % divisor == 0) return false;
    }
    return true;
  }
  static uint32_t Fraction(double root) {
    return static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0);
  }
};

uint32_t RotateRight(uint32_t word, unsigned bits) {
  return (word >> bits) | (word << (32 - bits));
}

void AddBlock(const Constants& constants, const uint8_t* block, State* state) {
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
    const uint32_t first = s[7] + choice + constants.rounds[i] + w[i] +
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
  const Constants constants;
  State state = constants.start;
  const auto add = [&](const std::string& part, size_t begin) {
    for (; begin + kBlockBytes <= part.size(); begin += kBlockBytes) {
      AddBlock(constants, reinterpret_cast<const uint8_t*>(part.data()) + begin, &state);
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

#include "collops/kernels/half.h"

#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <limits>

#include "check.h"
#include "kernels/half_reference.h"

namespace {

using collops::kernels::BFloat16ToFloat;
using collops::kernels::BitsFromFloat;
using collops::kernels::Float16ToFloat;
using collops::kernels::FloatFromBits;
using collops::kernels::FloatToBFloat16;
using collops::kernels::FloatToFloat16;
using half_reference::Format;

struct Codec {
  const char* name;
  Format format;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
};

constexpr Codec kFloat16{"float16", half_reference::kFloat16, Float16ToFloat, FloatToFloat16};
constexpr Codec kBFloat16{"bfloat16", half_reference::kBFloat16, BFloat16ToFloat, FloatToBFloat16};

bool SameFloat(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : BitsFromFloat(a) == BitsFromFloat(b);
}

bool IsNan(const Codec& codec, uint16_t pattern) {
  return std::isnan(half_reference::Decode(codec.format, pattern));
}

bool IsQuietNan(const Codec& codec, uint16_t pattern) {
  return IsNan(codec, pattern) && (pattern >> (codec.format.mantissa_bits - 1)) % 2 == 1;
}

// Counts errors instead of reporting each: a fault usually shows in thousands of patterns.
int WrongWidenings(const Codec& codec) {
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t pattern = static_cast<uint16_t>(i);
    const float got = codec.widen(pattern);
    const float want = static_cast<float>(half_reference::Decode(codec.format, pattern));
    if (SameFloat(got, want)) continue;
    if (++wrong == 1) std::printf("%s 0x%04x widens to %a, not %a\n", codec.name, i, got, want);
  }
  return wrong;
}

int WrongRoundTrips(const Codec& codec) {
  int wrong = 0;
  for (uint32_t i = 0; i < 65536; ++i) {
    const uint16_t pattern = static_cast<uint16_t>(i);
    const uint16_t got = codec.narrow(codec.widen(pattern));
    const bool right =
        IsNan(codec, pattern) ? IsQuietNan(codec, got) && (got ^ pattern) < 0x8000 : got == pattern;
    if (right) continue;
    if (++wrong == 1) std::printf("%s 0x%04x comes back as 0x%04x\n", codec.name, i, got);
  }
  return wrong;
}

bool NarrowsRight(const Codec& codec, uint32_t bits) {
  const uint16_t got = codec.narrow(FloatFromBits(bits));
  const uint16_t want = half_reference::Encode(codec.format, FloatFromBits(bits));
  if (IsNan(codec, want)) return IsQuietNan(codec, got);
  return got == want;
}

// Every sign, exponent and upper mantissa of float32, with the lower bits on both sides of a tie of
// bfloat16 (16 bits dropped) and of float16 (13 bits dropped).
int WrongNarrowings(const Codec& codec) {
  int wrong = 0;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (const uint32_t lower :
         {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu, 0x8000u,
          0x8001u, 0xefffu, 0xf000u, 0xf001u, 0xffffu}) {
      const uint32_t bits = upper << 16 | lower;
      if (NarrowsRight(codec, bits)) continue;
      if (++wrong == 1) std::printf("%s: float32 0x%08x narrows wrongly\n", codec.name, bits);
    }
  }
  return wrong;
}

}  // namespace

TEST(AllPatternsAreConvertedExactly) {
  for (const Codec& codec : {kFloat16, kBFloat16}) {
    EXPECT_EQ(WrongWidenings(codec), 0);
    EXPECT_EQ(WrongRoundTrips(codec), 0);
    EXPECT_EQ(WrongNarrowings(codec), 0);  // to the nearest, ties to even
  }
}

// Computed by hand, to show a mistake that code and reference have in common.
TEST(KnownNumbers) {
  struct Known {
    float wide;
    uint16_t float16;
    uint16_t bfloat16;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const Known numbers[] = {
      {0x1.01p0f, 0x3c04, 0x3f80},    // ties of bfloat16, to even
      {0x1.03p0f, 0x3c0c, 0x3f82},    //
      {0x1.002p0f, 0x3c00, 0x3f80},   // ties of float16
      {-0x1.006p0f, 0xbc02, 0xbf80},  //
      {0x1p-24f, 0x0001, 0x3380},     // subnormal in float16
      {0x1p-25f, 0x0000, 0x3300},     // a tie, to even
      {0x1.8p-25f, 0x0001, 0x3340},
      {0x1.ffcp-15f, 0x0400, 0x3880},  // a tie that carries to the normal numbers
      {0x1p-133f, 0x0000, 0x0001},     // subnormal in bfloat16
      {-0.0f, 0x8000, 0x8000},
      {-0x1p-149f, 0x8000, 0x8000},
      {65504.0f, 0x7bff, 0x4780},
      {65520.0f, 0x7c00, 0x4780},  // a tie whose even neighbour is infinity
      {std::numeric_limits<float>::max(), 0x7c00, 0x7f80},
      {-infinity, 0xfc00, 0xff80},
      {FloatFromBits(0x7f800001), 0x7e00, 0x7fc0},  // a NaN whose payload is in dropped bits
      {FloatFromBits(0xffffffff), 0xffff, 0xffff},  // would wrap to 0 if rounded
  };
  for (const Known& known : numbers) {
    EXPECT_EQ(FloatToFloat16(known.wide), known.float16);
    EXPECT_EQ(FloatToBFloat16(known.wide), known.bfloat16);
  }
  EXPECT_EQ(BitsFromFloat(Float16ToFloat(0x0001)), BitsFromFloat(0x1p-24f));
  EXPECT_EQ(BitsFromFloat(BFloat16ToFloat(0x8001)), BitsFromFloat(-0x1p-133f));
}

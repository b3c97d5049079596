// The arithmetic peak: multiplications and additions in registers alone, with the instructions that
// a product uses. Part of the Python extension; each function is compiled for its own instruction
// set.
#include "peak.h"

#include <cstddef>
#include <utility>

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/isa.h"
#include "collops/kernels/vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace bench {
namespace {

using collops::DType;
using collops::kernels::Isa;
using Four = collops::kernels::Vector<float, 16>;

// In each of these constant indices let the compiler keep every sum in a register. The sums start
// with different values, or equal ones would be computed only once.

template <size_t... kIndex>
float Portable(int64_t rounds, std::index_sequence<kIndex...>) {
  Four sums[] = {(Four{} + static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) ((sums[kIndex] = sums[kIndex] * 0.5F + 1.0F), ...);
  return (sums[kIndex][0] + ...);
}

#if defined(__x86_64__)

template <size_t... kIndex>
[[gnu::target("avx2,fma")]] float Avx2(int64_t rounds, std::index_sequence<kIndex...>) {
  const __m256 half = _mm256_set1_ps(0.5F);
  const __m256 one = _mm256_set1_ps(1.0F);
  __m256 sums[] = {_mm256_set1_ps(static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) {
    ((sums[kIndex] = _mm256_fmadd_ps(sums[kIndex], half, one)), ...);
  }
  return (_mm256_cvtss_f32(sums[kIndex]) + ...);
}

template <size_t... kIndex>
[[gnu::target("avx512f")]] float Avx512(int64_t rounds, std::index_sequence<kIndex...>) {
  const __m512 half = _mm512_set1_ps(0.5F);
  const __m512 one = _mm512_set1_ps(1.0F);
  __m512 sums[] = {_mm512_set1_ps(static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) {
    ((sums[kIndex] = _mm512_fmadd_ps(sums[kIndex], half, one)), ...);
  }
  return (_mm512_cvtss_f32(sums[kIndex]) + ...);
}

// Two products of bfloat16 in each lane.
template <size_t... kIndex>
[[gnu::target("avx512f,avx512bf16")]] float Pairs(int64_t rounds, std::index_sequence<kIndex...>) {
  const auto ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));  // two times 1.0
  __m512 sums[] = {_mm512_set1_ps(static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) {
    ((sums[kIndex] = _mm512_dpbf16_ps(sums[kIndex], ones, ones)), ...);
  }
  return (_mm512_cvtss_f32(sums[kIndex]) + ...);
}

[[gnu::target("amx-tile,amx-bf16")]] void Amx(int64_t rounds) {
  static constexpr collops::kernels::TileConfig kConfig;
  _tile_loadconfig(&kConfig);  // sets all registers to zero
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

#elif defined(__aarch64__)

// clang has a macro of this name, in which a pack cannot be expanded.
float FirstOf(float32x4_t sum) {
  return vgetq_lane_f32(sum, 0);
}

template <size_t... kIndex>
float Neon(int64_t rounds, std::index_sequence<kIndex...>) {
  float32x4_t sums[] = {vdupq_n_f32(static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) {
    ((sums[kIndex] = vfmaq_f32(vdupq_n_f32(1.0F), sums[kIndex], vdupq_n_f32(0.5F))), ...);
  }
  return (FirstOf(sums[kIndex]) + ...);
}

// Four products in each of the 2 x 2 sums.
template <size_t... kIndex>
[[gnu::target("arch=armv8.2-a+bf16")]] float Bfmmla(int64_t rounds,
                                                    std::index_sequence<kIndex...>) {
  // 1 + 2^-7; for 1, gcc 12 makes a wrong instruction.
  const auto factors = reinterpret_cast<bfloat16x8_t>(vdupq_n_u16(0x3f81));
  float32x4_t sums[] = {vdupq_n_f32(static_cast<float>(kIndex))...};
  for (int64_t i = 0; i < rounds; ++i) {
    ((sums[kIndex] = vbfmmlaq_f32(sums[kIndex], factors, factors)), ...);
  }
  return (FirstOf(sums[kIndex]) + ...);
}

#endif

// Uses a sum, so that the compiler does not remove the loop; multiplications and additions of
// `sums` vectors of `bytes`, each with so many products in a lane.
int64_t Counted(float sum, int64_t rounds, int64_t sums, int64_t bytes, int64_t products = 1) {
  volatile float used = sum;
  static_cast<void>(used);
  return rounds * sums * bytes / 4 * 2 * products;
}

}  // namespace

int64_t RunArithmetic(DType dtype, int64_t rounds) {
  if (!collops::kernels::CanMultiply(dtype) || dtype == DType::kInt8) return 0;
  const bool bfloat16 = dtype == DType::kBFloat16;
  const Isa isa = collops::kernels::ActiveIsa();
  constexpr auto kTwelve = std::make_index_sequence<12>();
  [[maybe_unused]] constexpr auto kMore = std::make_index_sequence<24>();
#if defined(__x86_64__)
  if (isa == Isa::kAmx && bfloat16) {
    Amx(rounds);
    return rounds * 4 * 2 * 16 * 16 * 32;  // sums; rows, columns and k of one instruction
  }
  const bool wide = isa == Isa::kAmx || isa == Isa::kAvx512;
  if (wide && bfloat16 && collops::kernels::Has(collops::kernels::Extension::kAvx512BFloat16)) {
    return Counted(Pairs(rounds, kMore), rounds, 24, 64, 2);
  }
  if (wide) return Counted(Avx512(rounds, kMore), rounds, 24, 64);
  if (isa == Isa::kAvx2) return Counted(Avx2(rounds, kTwelve), rounds, 12, 32);
#elif defined(__aarch64__)
  if (isa == Isa::kNeon && bfloat16 &&
      collops::kernels::Has(collops::kernels::Extension::kBfmmla)) {
    return Counted(Bfmmla(rounds, kMore), rounds, 24, 16, 4);
  }
  if (isa == Isa::kNeon) return Counted(Neon(rounds, kMore), rounds, 24, 16);
#endif
  return Counted(Portable(rounds, kTwelve), rounds, 12, 16);
}

}  // namespace bench

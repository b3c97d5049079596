#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#include "collops/kernels/gemm/gemm_pack.h"
#include "collops/kernels/vector.h"

// Vectors of NEON for products. In an unnamed namespace for the reason given in vector.h.
namespace collops::kernels {
namespace {

// 24 sums, three vectors of columns and two of rows: 29 of the 32 registers.
struct NeonVectors {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 12;
  static constexpr int64_t kBlockUnits = 256;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static void Transpose(Bits (&rows)[4]) {
    const auto a = reinterpret_cast<uint64x2_t>(vtrn1q_u32(rows[0], rows[1]));
    const auto b = reinterpret_cast<uint64x2_t>(vtrn2q_u32(rows[0], rows[1]));
    const auto c = reinterpret_cast<uint64x2_t>(vtrn1q_u32(rows[2], rows[3]));
    const auto d = reinterpret_cast<uint64x2_t>(vtrn2q_u32(rows[2], rows[3]));
    rows[0] = reinterpret_cast<Bits>(vtrn1q_u64(a, c));
    rows[1] = reinterpret_cast<Bits>(vtrn1q_u64(b, d));
    rows[2] = reinterpret_cast<Bits>(vtrn2q_u64(a, c));
    rows[3] = reinterpret_cast<Bits>(vtrn2q_u64(b, d));
  }
};

// A lane of a vector of four rows: with MultiplyAdd() the compiler makes one instruction by lane of
// it.
template <size_t kRow>
struct NeonRowUnit {
  static NeonVectors::Sum Broadcast(const uint32_t* rows) {
    constexpr size_t kLane = kRow % kLanes<NeonVectors>;
    return vdupq_laneq_f32(LoadVector<NeonVectors::Sum>(rows + kRow - kLane), kLane);
  }
};

}  // namespace
}  // namespace collops::kernels

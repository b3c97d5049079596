// The product for NEON, which every arm64 CPU has.

#include <arm_neon.h>

#include "collops/kernels/gemm/gemm_loops.h"

namespace collops::kernels {
namespace {

// 24 sums, three vectors of columns and two of rows: 29 of the 32 registers.
struct Neon {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kRowTile = 8;
  static constexpr int64_t kColumnTile = 12;
  static constexpr int64_t kBlockUnits = 256;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) { return vfmaq_f32(sum, b, a); }

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

  static Bits ZeroExtend(Vector<uint16_t, 8> halves) { return vmovl_u16(halves); }
  static Bits WidenFloat16(Vector<uint16_t, 8> halves) {
    return reinterpret_cast<Bits>(vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves)));
  }
  static Vector<uint16_t, 8> NarrowFloat16(Bits units) {
    return reinterpret_cast<Vector<uint16_t, 8>>(vcvt_f16_f32(reinterpret_cast<Sum>(units)));
  }
};

// A lane of a vector of four rows: with MultiplyAdd() the compiler makes one `fmla` by lane of it.
template <size_t kRow>
struct RowUnit<Neon, kRow> {
  static Neon::Sum Broadcast(const uint32_t* rows) {
    constexpr size_t kLane = kRow % kLanes<Neon>;
    return vdupq_laneq_f32(LoadVector<Neon::Sum>(rows + kRow - kLane), kLane);
  }
};

}  // namespace

const GemmKernels* NeonGemmKernels(DType dtype) {
  if (dtype == DType::kInt8) return CountingKernelsFor<Neon>();
  return Float32KernelsFor<Neon>(dtype);
}

}  // namespace collops::kernels

// The product in plain C++: vectors of 16 bytes, which every 64-bit machine has. Products and sums
// are rounded separately, because no instruction is named.

#include "collops/kernels/gemm/gemm_loops.h"
#include "collops/kernels/half.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace collops::kernels {
namespace {

struct Portable {
  static constexpr int kVectorBytes = 16;
  static constexpr int64_t kRowTile = 4;
  static constexpr int64_t kColumnTile = 8;
  static constexpr int64_t kBlockUnits = 256;
  using Bits = Vector<uint32_t, kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Broadcast(const uint32_t* unit) {
    const Bits bits = {unit[0], unit[0], unit[0], unit[0]};
    return reinterpret_cast<Sum>(bits);
  }
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) { return a * b + sum; }

  static void Transpose(Bits (&rows)[4]) { TransposeFour(rows); }

  static Bits ZeroExtend(Vector<uint16_t, 8> halves) {
    return __builtin_convertvector(halves, Bits);
  }
  static Bits WidenFloat16(Vector<uint16_t, 8> halves) {
#if defined(__aarch64__)
    return reinterpret_cast<Bits>(vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves)));
#else
    return reinterpret_cast<Bits>(
        FloatFromFloat16<VectorLane<kVectorBytes> >(__builtin_convertvector(halves, Bits)));
#endif
  }
  static Vector<uint16_t, 8> NarrowFloat16(Bits units) {
    using Lane = VectorLane<kVectorBytes>;
    const Bits halves = Float16FromFloat<Lane>(Lane::ToFloat(units));
    return __builtin_convertvector(halves, Vector<uint16_t, 8>);
  }
};

// Rounds once.
struct PortableFused : Portable {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) {
#if defined(__aarch64__)
    return vfmaq_f32(sum, a, b);
#else
    // A double holds the product. Its sum is rounded to odd: an inexact one whose last bit is 0
    // becomes its neighbour on the side of the exact sum, so that the float32 next to it is that of
    // the exact sum.
    using Doubles = Vector<double, 2 * kVectorBytes>;
    using Longs = Vector<int64_t, 2 * kVectorBytes>;
    const auto product = __builtin_convertvector(a, Doubles) * __builtin_convertvector(b, Doubles);
    const auto addend = __builtin_convertvector(sum, Doubles);
    const Doubles total = product + addend;
    const Doubles back = total - product;
    const Doubles lost = (product - (total - back)) + (addend - back);  // exactly
    const Longs is_even = (reinterpret_cast<Longs>(total) & 1) - 1;
    const Longs is_inexact = (lost > 0) | (lost < 0);   // not of infinities and NaNs
    const Longs step = ((lost > 0) ^ (total > 0)) | 1;  // 1: away from zero, else -1
    const auto odd = reinterpret_cast<Longs>(total) + (step & is_even & is_inexact);
    return __builtin_convertvector(reinterpret_cast<Doubles>(odd), Sum);
#endif
  }
};

}  // namespace

const GemmKernels* PortableGemmKernels(DType dtype) {
  if (dtype == DType::kInt8) return CountingKernelsFor<Portable>();
  return Float32KernelsFor<Portable>(dtype);
}

const GemmKernels* PortableFusedGemmKernels(DType dtype) {
  return Float32KernelsFor<PortableFused>(dtype);
}

}  // namespace collops::kernels

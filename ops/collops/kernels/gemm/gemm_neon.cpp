// The product for NEON, which every arm64 CPU has.

#include "collops/kernels/gemm/gemm_loops.h"
#include "collops/kernels/gemm/gemm_neon_vectors.h"

namespace collops::kernels {
namespace {

struct Neon : NeonVectors {
  static Sum MultiplyAdd(Sum a, Sum b, Sum sum) { return vfmaq_f32(sum, b, a); }

  static Bits ZeroExtend(Vector<uint16_t, 8> halves) { return vmovl_u16(halves); }
  static Bits WidenFloat16(Vector<uint16_t, 8> halves) {
    return reinterpret_cast<Bits>(vcvt_f32_f16(reinterpret_cast<float16x4_t>(halves)));
  }
  static Vector<uint16_t, 8> NarrowFloat16(Bits units) {
    return reinterpret_cast<Vector<uint16_t, 8>>(vcvt_f16_f32(reinterpret_cast<Sum>(units)));
  }
};

template <size_t kRow>
struct RowUnit<Neon, kRow> : NeonRowUnit<kRow> {};

}  // namespace

const GemmKernels* NeonGemmKernels(DType dtype) {
  if (dtype == DType::kInt8) return CountingKernelsFor<Neon>();
  return Float32KernelsFor<Neon>(dtype);
}

}  // namespace collops::kernels

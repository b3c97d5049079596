// The reductions in plain C++: vectors of 16 bytes, which every 64-bit machine has. Only float16 on
// arm64 uses instructions by name, because every arm64 CPU converts it.

#include "collops/kernels/reduce/reduce_loops.h"
#include "collops/kernels/reduce/row_loops.h"
#include "collops/kernels/reduce/sum_loops.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace collops::kernels {
namespace {

#if defined(__aarch64__)

// float16 by arm64's conversions, which round to nearest even and keep subnormals.
struct Float16Arm64 {
  using Stored = uint16_t;
  using Raw = Vector<uint16_t, 16>;
  using Sum = Pair<16>;
  static constexpr bool kPrefetch = true;

  static Sum Widen(Raw raw) {
    const float16x8_t halves = vreinterpretq_f16_u16(raw);
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  static Raw Narrow(Sum sum) {
    return vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(sum.first), sum.second));
  }
};

#endif

struct Portable {
  static constexpr int kVectorBytes = 16;
  static constexpr int kInFlight = 4;
  static constexpr bool kStreams = false;
#if defined(__aarch64__)
  using Float16 = Float16Arm64;
#else
  using Float16 = kernels::Float16<kVectorBytes>;
#endif
  using Lane = VectorLane<kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  // Of the sums that go on in float32, by half.h's integer operations on all machines.
  static Sum WidenFloat16(Halves halves) {
    return FloatFromFloat16<Lane>(__builtin_convertvector(halves, Lane::Bits));
  }
  static Halves NarrowFloat16(Sum sum) {
    return __builtin_convertvector(Float16FromFloat<Lane>(sum), Halves);
  }
};

}  // namespace

const ReduceKernels kPortableReduceKernels = {
    &Kernels<Portable>::Find,      &FindRunningSumKernel<Portable>,
    &FindStoreSumKernel<Portable>, &FindWeightedSumKernel<Portable>,
    &FindQuantizeKernel<Portable>, &WidenBytes<Portable>,
    &ScaleSumRange<Portable>};

}  // namespace collops::kernels

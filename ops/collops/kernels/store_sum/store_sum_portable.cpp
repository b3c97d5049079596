// StoreSum() and RunningSum() in plain C++: vectors of 16 bytes, which every 64-bit machine has.
// float16 goes through half.h's integer operations.

#include "collops/kernels/store_sum/running_sum_loops.h"
#include "collops/kernels/store_sum/store_sum_loops.h"

namespace collops::kernels {
namespace {

struct Portable {
  static constexpr int kVectorBytes = 16;
  using Lane = VectorLane<kVectorBytes>;
  using Sum = Vector<float, kVectorBytes>;
  using Halves = Vector<uint16_t, kVectorBytes / 2>;

  static Sum WidenFloat16(Halves halves) {
    return FloatFromFloat16<Lane>(__builtin_convertvector(halves, Lane::Bits));
  }
  static Halves NarrowFloat16(Sum sum) {
    return __builtin_convertvector(Float16FromFloat<Lane>(sum), Halves);
  }
};

}  // namespace

StoreSumKernel PortableStoreSumKernel(DType dtype) {
  return FindStoreSumKernel<Portable>(dtype);
}
RunningSumKernel PortableRunningSumKernel(DType dtype, ReduceOp op) {
  return FindRunningSumKernel<Portable>(dtype, op);
}

}  // namespace collops::kernels

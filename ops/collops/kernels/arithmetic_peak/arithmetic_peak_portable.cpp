// RunArithmetic() in plain C++: vectors of 16 bytes, a multiplication and then an addition.

#include "collops/kernels/arithmetic_peak/arithmetic_peak_kernels.h"
#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"

namespace collops::kernels {
namespace {

struct Portable {
  static constexpr int kVectorBytes = 16;
  static constexpr size_t kSums = 12;
  static constexpr int64_t kOperationsPerStep = 2 * kVectorBytes / 4;
  using Sum = Vector<float, kVectorBytes>;

  static Sum Step(Sum sum) { return sum * 0.5F + 1.0F; }
};

}  // namespace

int64_t PortableArithmetic(int64_t rounds) {
  return CountArithmetic<Portable>(rounds);
}

}  // namespace collops::kernels

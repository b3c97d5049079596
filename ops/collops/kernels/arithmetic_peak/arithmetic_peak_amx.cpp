// RunArithmetic() for AMX_BF16. Built with it switched on (ops/collops/CMakeLists.txt).

#include "collops/kernels/arithmetic_peak/arithmetic_peak_loops.h"
#include "collops/kernels/vector.h"

namespace collops::kernels {

int64_t AmxArithmetic(int64_t rounds) {
  static constexpr TileConfig kConfig;
  constexpr int64_t kOperations = 2 * 16 * 16 * 32;  // rows, columns and k of one instruction
  constexpr int64_t kSums = 4;
  _tile_loadconfig(&kConfig);  // sets all registers to zero
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return rounds * kSums * kOperations;
}

}  // namespace collops::kernels

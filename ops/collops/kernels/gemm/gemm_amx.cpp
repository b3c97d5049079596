// The products of bfloat16 and int8 for AMX_BF16 and AMX_INT8. Built with AMX and AVX-512 switched
// on (ops/collops/CMakeLists.txt).

#include "collops/kernels/gemm/gemm.h"
#include "collops/kernels/gemm/gemm_avx512.h"
#include "collops/kernels/gemm/gemm_matrix_loops.h"
#include "collops/kernels/vector.h"

namespace collops::kernels {
namespace {

// Sums in the registers 0 to 3, A in 4 and 5, B in 6 and 7. The numbers are parts of instructions,
// which gcc's macros paste: hence the branches.
struct AmxRegisters {
  static void Begin() {
    static constexpr TileConfig kConfig;
    _tile_loadconfig(&kConfig);
  }
  // Without tiles in use, the system saves less when it switches threads.
  static void End() { _tile_release(); }

  template <int kRow>
  static void LoadA(const void* from, int64_t row_bytes) {
    WriteBefore();
    if constexpr (kRow == 0) _tile_loadd(4, from, row_bytes);
    if constexpr (kRow == 1) _tile_loadd(5, from, row_bytes);
  }

  template <int kColumn>
  static void LoadB(const void* from, int64_t row_bytes) {
    WriteBefore();
    if constexpr (kColumn == 0) _tile_loadd(6, from, row_bytes);
    if constexpr (kColumn == 1) _tile_loadd(7, from, row_bytes);
  }

  template <int kRow, int kColumn>
  static void LoadC(const void* from, int64_t row_bytes) {
    WriteBefore();
    if constexpr (kRow == 0 && kColumn == 0) _tile_loadd(0, from, row_bytes);
    if constexpr (kRow == 0 && kColumn == 1) _tile_loadd(1, from, row_bytes);
    if constexpr (kRow == 1 && kColumn == 0) _tile_loadd(2, from, row_bytes);
    if constexpr (kRow == 1 && kColumn == 1) _tile_loadd(3, from, row_bytes);
  }

  template <int kRow, int kColumn>
  static void StoreC(void* to, int64_t row_bytes) {
    if constexpr (kRow == 0 && kColumn == 0) _tile_stored(0, to, row_bytes);
    if constexpr (kRow == 0 && kColumn == 1) _tile_stored(1, to, row_bytes);
    if constexpr (kRow == 1 && kColumn == 0) _tile_stored(2, to, row_bytes);
    if constexpr (kRow == 1 && kColumn == 1) _tile_stored(3, to, row_bytes);
  }

  template <int kRow, int kColumn>
  static void Zero() {
    if constexpr (kRow == 0 && kColumn == 0) _tile_zero(0);
    if constexpr (kRow == 0 && kColumn == 1) _tile_zero(1);
    if constexpr (kRow == 1 && kColumn == 0) _tile_zero(2);
    if constexpr (kRow == 1 && kColumn == 1) _tile_zero(3);
  }

  template <int kRow, int kColumn>
  static void MultiplyAdd() {
    if constexpr (kRow == 0 && kColumn == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kRow == 0 && kColumn == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kRow == 1 && kColumn == 0) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kRow == 1 && kColumn == 1) _tile_dpbf16ps(3, 5, 7);
  }

 private:
  // gcc's loads do not say that they read memory, so what was stored must not be kept back.
  static void WriteBefore() { __asm__ volatile("" ::: "memory"); }
};

// The sums of C are int32; four products and their sum at a time wrap, and do not saturate.
struct AmxInt8Registers : AmxRegisters {
  template <int kRow, int kColumn>
  static void MultiplyAdd() {
    if constexpr (kRow == 0 && kColumn == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (kRow == 0 && kColumn == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (kRow == 1 && kColumn == 0) _tile_dpbssd(2, 5, 6);
    if constexpr (kRow == 1 && kColumn == 1) _tile_dpbssd(3, 5, 7);
  }
};

// Packs the weight.
struct WeightVectors : Avx512Vectors {
  static constexpr int64_t kColumnTile = kTilesColumns;
};

}  // namespace

const GemmKernels* AmxBFloat16GemmKernels() {
  static constexpr GemmKernels kKernels =
      TileKernels<AmxRegisters, WeightVectors, PairUnits<WeightVectors>,
                  NativePairs<WeightVectors>>();
  return &kKernels;
}

const GemmKernels* AmxInt8GemmKernels() {
  static constexpr GemmKernels kKernels = OfInt8<WeightVectors>(
      TileKernels<AmxInt8Registers, WeightVectors, ByteQuadUnits<WeightVectors>>());
  return &kKernels;
}

}  // namespace collops::kernels

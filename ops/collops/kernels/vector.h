#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
// gcc 12's header triggers gcc's own warnings about intentionally undefined values.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

// Everything here and in the headers of loops is in an unnamed namespace: each file of kernels
// compiles its own copy for its own instruction set, and the linker must never replace one copy by
// another.
namespace collops::kernels {
namespace {

// A vector of `kBytes` bytes of T, by an extension of gcc and clang: operators work on all lanes,
// comparisons give lanes of zeros or of ones.
template <typename T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};
template <typename T, int kBytes>
using Vector = typename VectorOf<T, kBytes>::Type;

// The Lane of half.h for a vector of 32-bit lanes.
template <int kBytes>
struct VectorLane {
  using Bits = Vector<uint32_t, kBytes>;
  using Signed = Vector<int32_t, kBytes>;
  using Float = Vector<float, kBytes>;
  static Float ToFloat(Bits bits) { return reinterpret_cast<Float>(bits); }
  static Bits ToBits(Float value) { return reinterpret_cast<Bits>(value); }
  static Bits IfNan(Float value, Bits yes, Bits no) { return value != value ? yes : no; }
  static Bits IfLess(Bits a, Bits b, Bits yes, Bits no) {
    return reinterpret_cast<Signed>(a) < reinterpret_cast<Signed>(b) ? yes : no;
  }
};

// A vector at any address.
template <typename V>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
  V value;
};

// How vectors are loaded and stored. One whole vector:
struct Whole {
  template <typename V>
  static V Load(const char* source) {
    return reinterpret_cast<const Unaligned<V>*>(source)->value;
  }
  template <typename V>
  static void Store(char* destination, V value) {
    reinterpret_cast<Unaligned<V>*>(destination)->value = value;
  }
};

// The first `bytes` bytes of a vector; the bytes after them are neither read nor written.
struct Part {
  size_t bytes;

  template <typename V>
  V Load(const char* source) const {
    V value{};
    std::memcpy(&value, source, bytes);
    return value;
  }
  template <typename V>
  void Store(char* destination, V value) const {
    std::memcpy(destination, &value, bytes);
  }
};

// As Whole, but stores go past the caches, to aligned addresses; Machine::Fence() ends a series of
// them.
template <typename Machine>
struct Streamed : Whole {
  template <typename V>
  static void Store(char* destination, V value) {
    Machine::Stream(destination, value);
  }
};

// What ldtilecfg reads: for each tile register its rows and the bytes of a row. All eight are
// whole.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace
}  // namespace collops::kernels

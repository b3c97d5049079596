#include "mpi/sums.h"

#include <algorithm>

#include "measure/elements.h"

namespace bench::mpi_calls {
namespace {

// The sum of a piece stays in the first-level cache while the blocks are read, so that memory is
// read once, whatever the number of blocks.
constexpr int64_t kPiece = 1024;

void AddFloat32(const float* __restrict other, float* __restrict into, int64_t count) {
  for (int64_t i = 0; i < count; ++i) into[i] += other[i];
}

void Widen(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = FromBFloat16(from[i]);
}

void AddWidened(const uint16_t* __restrict from, float* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] += FromBFloat16(from[i]);
}

void Round(const float* __restrict from, uint16_t* __restrict to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = ToBFloat16(from[i]);
}

// The commonest case, without a stop between.
void AddTwo(const float* __restrict a, const float* __restrict b, float* __restrict output,
            int64_t count) {
  for (int64_t i = 0; i < count; ++i) output[i] = a[i] + b[i];
}

void AddTwo(const uint16_t* __restrict a, const uint16_t* __restrict b, uint16_t* __restrict output,
            int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    output[i] = ToBFloat16(FromBFloat16(a[i]) + FromBFloat16(b[i]));
  }
}

void AddPieces(const float* blocks, int num_blocks, int64_t count, float* output) {
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    AddTwo(blocks + at, blocks + count + at, output + at, piece);
    for (int b = 2; b < num_blocks; ++b) AddFloat32(blocks + b * count + at, output + at, piece);
  }
}

void AddPieces(const uint16_t* blocks, int num_blocks, int64_t count, uint16_t* output) {
  if (num_blocks == 2) return AddTwo(blocks, blocks + count, output, count);
  float sums[kPiece];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t piece = std::min(kPiece, count - at);
    Widen(blocks + at, sums, piece);
    for (int b = 1; b < num_blocks; ++b) AddWidened(blocks + b * count + at, sums, piece);
    Round(sums, output + at, piece);
  }
}

}  // namespace

void AddBFloat16(const uint16_t* other, uint16_t* into, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    into[i] = ToBFloat16(FromBFloat16(other[i]) + FromBFloat16(into[i]));
  }
}

void AddBlocks(DType dtype, const void* blocks, int num_blocks, int64_t count, void* output) {
  if (dtype == DType::kFloat32) {
    AddPieces(static_cast<const float*>(blocks), num_blocks, count, static_cast<float*>(output));
  } else {
    AddPieces(static_cast<const uint16_t*>(blocks), num_blocks, count,
              static_cast<uint16_t*>(output));
  }
}

}  // namespace bench::mpi_calls

#include "collops/kernels/rows.h"

#include <algorithm>
#include <cstring>

#include "collops/kernels/reduce/reduce_kernels.h"
#include "collops/kernels/thread_pool.h"

namespace collops::kernels {
namespace {

constexpr int64_t kScaleBytes = sizeof(float);

// Calls body(begin, end) for parts of [0, count), of which all together move `bytes`.
template <typename Body>
void InParts(int64_t count, int64_t bytes, const Body& body) {
  constexpr int64_t kPartsOfThread = 4;  // some are slower than others
  const int threads = bytes < kLeastSharedBytes ? 1 : NumThreads();
  if (threads == 1) return body(0, count);
  const int64_t parts = std::min<int64_t>(count, threads * kPartsOfThread);
  ParallelFor(static_cast<int>(parts),
              [&](int part) { body(count * part / parts, count * (part + 1) / parts); });
}

void CopyBytes(char* to, const char* from, int64_t bytes) {
  if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

void SpreadRows(const RowPlaces& places, const void* rows, int64_t row_bytes, const void* scales,
                void* to) {
  const int64_t bytes = places.rows * (places.copies + 1) * row_bytes;
  InParts(places.rows, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const char* const row = static_cast<const char*>(rows) + t * row_bytes;
      for (int64_t k = 0; k < places.copies; ++k) {
        const int64_t position = places.positions[t * places.copies + k];
        if (position < 0) continue;
        char* const target = static_cast<char*>(to) + position * places.stride;
        CopyBytes(target, row, row_bytes);
        if (scales != nullptr)
          std::memcpy(target + row_bytes, static_cast<const char*>(scales) + t * kScaleBytes,
                      kScaleBytes);
      }
    }
  });
}

bool CanWeigh(DType dtype) {
  return kPortableReduceKernels.weighted_sum(dtype) != nullptr;
}

void QuantizeRows(const RowPlaces& places, DType dtype, const void* rows, int64_t columns,
                  void* to) {
  const QuantizeKernel kernel = ActiveReduceKernels().quantize(dtype);
  const int64_t row_bytes = columns * SizeOf(dtype);
  const int64_t bytes = places.rows * (row_bytes + places.copies * columns);
  InParts(places.rows, bytes, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const char* first = nullptr;
      for (int64_t k = 0; k < places.copies; ++k) {
        const int64_t position = places.positions[t * places.copies + k];
        if (position < 0) continue;
        char* const target = static_cast<char*>(to) + position * places.stride;
        if (first != nullptr) {
          CopyBytes(target, first, columns + kScaleBytes);
          continue;
        }
        const float scale = kernel(reinterpret_cast<int8_t*>(target),
                                   static_cast<const char*>(rows) + t * row_bytes, columns);
        std::memcpy(target + columns, &scale, kScaleBytes);
        first = target;
      }
    }
  });
}

void WeightedSums(const RowPlaces& places, DType dtype, const void* from, int64_t columns,
                  const float* weights, void* out) {
  const WeightedSumKernel kernel = ActiveReduceKernels().weighted_sum(dtype);
  const int64_t row_bytes = columns * SizeOf(dtype);
  const int64_t bytes = places.rows * (places.copies + 1) * row_bytes;
  InParts(places.rows, bytes, [&](int64_t begin, int64_t end) {
    std::vector<const void*> rows(static_cast<size_t>(places.copies));
    std::vector<float> own(static_cast<size_t>(places.copies));
    for (int64_t t = begin; t < end; ++t) {
      size_t count = 0;
      for (int64_t i = t * places.copies; i < (t + 1) * places.copies; ++i) {
        if (places.positions[i] < 0) continue;
        rows[count] = static_cast<const char*>(from) + places.positions[i] * places.stride;
        own[count++] = weights == nullptr ? 1 : weights[i];
      }
      kernel(static_cast<char*>(out) + t * row_bytes, rows.data(),
             weights == nullptr ? nullptr : own.data(), static_cast<int>(count), columns);
    }
  });
}

void CopyRows(const std::vector<RowRange>& ranges, const void* from, int64_t row_bytes, void* to,
              float* scales) {
  const int64_t stride = row_bytes + (scales == nullptr ? 0 : kScaleBytes);
  int64_t total = 0;
  for (const RowRange& range : ranges) total += range.rows;
  const auto copy = [&](int64_t to_row, int64_t from_row, int64_t rows) {
    const char* source = static_cast<const char*>(from) + from_row * stride;
    char* const target = static_cast<char*>(to) + to_row * row_bytes;
    if (scales == nullptr) return CopyBytes(target, source, rows * row_bytes);
    for (int64_t row = 0; row < rows; ++row, source += stride) {
      CopyBytes(target + row * row_bytes, source, row_bytes);
      std::memcpy(scales + to_row + row, source + row_bytes, kScaleBytes);
    }
  };
  // Parts are of equally many rows, because the ranges may be of any length.
  InParts(total, 2 * total * row_bytes, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const RowRange& range : ranges) {
      const int64_t skipped = std::max<int64_t>(begin - first, 0);
      const int64_t rows = std::min(range.rows, end - first) - skipped;
      if (rows > 0) copy(range.to + skipped, range.from + skipped, rows);
      first += range.rows;
    }
  });
}

}  // namespace collops::kernels

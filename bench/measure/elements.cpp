#include "measure/elements.h"

namespace bench {
namespace {

float Expected(const Point& point, int rank, int64_t i) {
  const int ranks = point.ranks();
  const auto sum_at = [&](int64_t position) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) sum += Input(r, position);
    return sum;
  };
  const int64_t begin = point.displs[static_cast<size_t>(rank)];
  const int64_t own = point.counts[static_cast<size_t>(rank)];
  switch (point.op) {
    case Operator::kAllGatherV: {
      int owner = ranks - 1;
      while (point.displs[static_cast<size_t>(owner)] > i) --owner;
      return Input(owner, i - point.displs[static_cast<size_t>(owner)]);
    }
    case Operator::kReduceScatterV:
      return sum_at(begin + i);
    case Operator::kAllReduce:
      return sum_at(i);
    case Operator::kBroadcast:
      return Input(0, i);
    case Operator::kAllToAllV:
      return Input(static_cast<int>(i / own), begin + i % own);
    case Operator::kSendRecv:
      return Input((rank + ranks - 1) % ranks, i);
  }
  return -1;
}

}  // namespace

void Fill(const Point& point, int rank, void* x) {
  for (int64_t i = 0; i < point.XCount(rank); ++i) {
    if (point.dtype == DType::kFloat32) {
      static_cast<float*>(x)[i] = Input(rank, i);
    } else {
      static_cast<uint16_t*>(x)[i] = ToBFloat16(Input(rank, i));
    }
  }
}

void Poison(const Point& point, int64_t count, void* elements) {
  std::memset(elements, 0xff, static_cast<size_t>(count * SizeOf(point.dtype)));
}

bool IsRight(const Point& point, int rank, const void* output) {
  for (int64_t i = 0; i < point.OutputCount(rank); ++i) {
    const float expected = Expected(point, rank, i);
    if (point.dtype == DType::kFloat32) {
      if (std::memcmp(static_cast<const float*>(output) + i, &expected, sizeof(float)) != 0) {
        return false;
      }
    } else if (static_cast<const uint16_t*>(output)[i] != ToBFloat16(expected)) {
      return false;
    }
  }
  return true;
}

}  // namespace bench

#include "collops/comm/backends/hccl/calls/counts.h"

#include <memory>
#include <utility>
#include <vector>

namespace collops::hccl {
namespace {

struct Copy {
  std::vector<uint64_t> numbers;  // counts, then displacements
  KeepAlive rest;                 // what else the call needs
};

}  // namespace

HcclCounts TakeCounts(const int64_t* counts, const int64_t* displs, int rank_size, int64_t scale,
                      bool held, KeepAlive* keep) {
  // The counts have been checked: none is negative, so int64_t and uint64_t have the same bits.
  if (scale == 1 && held) return {counts, displs};
  auto copy = std::make_shared<Copy>();
  for (const int64_t* numbers : {counts, displs}) {
    for (int r = 0; r < rank_size; ++r) {
      copy->numbers.push_back(static_cast<uint64_t>(numbers[r] * scale));
    }
  }
  copy->rest = std::move(*keep);
  const uint64_t* const first = copy->numbers.data();
  *keep = std::move(copy);
  return {first, first + rank_size};
}

}  // namespace collops::hccl

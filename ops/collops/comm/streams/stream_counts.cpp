#include "collops/comm/streams/stream_counts.h"

#include <algorithm>

namespace collops {

bool AreEven(const int64_t* counts, const int64_t* displs, int rank_size) {
  for (int r = 0; r < rank_size; ++r) {
    if (counts[r] != counts[0] || displs[r] != r * counts[0]) return false;
  }
  return true;
}

bool AreZero(const int64_t* counts, int rank_size) {
  return std::all_of(counts, counts + rank_size, [](int64_t count) { return count == 0; });
}

bool HasOneOwner(const int64_t* counts, int rank_size) {
  return std::count(counts, counts + rank_size, 0) == rank_size - 1;
}

}  // namespace collops

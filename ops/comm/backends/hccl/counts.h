#pragma once

#include <cstdint>

#include "comm/call.h"

namespace collops::hccl {

// A call's counts and displacements as HCCL takes them: uint64_t each, in elements of the type in
// which the call travels.
struct HcclCounts {
  const void* counts;
  const void* displs;
};

// `scale` elements of that type are one of the call's. `keep` holds the call's numbers, or nothing;
// afterwards it holds what is returned: the call's own numbers, or a copy where nothing holds those
// or they are scaled.
HcclCounts TakeCounts(const int64_t* counts, const int64_t* displs, int rank_size, int64_t scale,
                      Kept* keep);

}  // namespace collops::hccl

#pragma once

#include <cstdint>

#include "comm/call.h"

namespace collops::hccl {

// A call's counts and displacements as HCCL takes them: uint64_t, in elements of the type that is
// passed to HCCL.
struct HcclCounts {
  const void* counts;
  const void* displs;
};

// `scale`: elements passed to HCCL per element of the call. `keep` is the call's `keep` on entry,
// or null; on return it holds the returned numbers: the call's own, or a copy if the call's `keep`
// is null or they are scaled.
HcclCounts TakeCounts(const int64_t* counts, const int64_t* displs, int rank_size, int64_t scale,
                      KeepAlive* keep);

}  // namespace collops::hccl

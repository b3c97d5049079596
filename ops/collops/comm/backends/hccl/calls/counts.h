#pragma once

#include <cstdint>

#include "collops/comm/call.h"
#include "collops/comm/streams/stream_counts.h"

namespace collops::hccl {

// A call's counts and displacements as HCCL takes them: uint64_t, in elements of the type that is
// passed to HCCL.
struct HcclCounts {
  const void* counts;
  const void* displs;
};

// `scale`: elements passed to HCCL per element of the call. `held`: the call's own `keep` holds its
// lists. On return `keep` holds the returned numbers, besides what it held: the call's own, or a
// copy if they are not held or are scaled.
HcclCounts TakeCounts(const int64_t* counts, const int64_t* displs, int rank_size, int64_t scale,
                      bool held, KeepAlive* keep);

}  // namespace collops::hccl

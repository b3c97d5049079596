#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops {

// A call that nobody makes: ranks on hosts, and the elements of each rank's block or slice.
struct CallToPredict {
  bool reduces = false;  // ReduceScatterV; else AllGatherV
  std::vector<int> host_of;
  std::vector<int64_t> counts;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
};

// What a call needs of one host. Bytes and messages are those between hosts: heads, chunks of data,
// and the empty messages that end streams; no headers, and none of the small ones that grant
// credit.
struct PredictedHost {
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t sent_messages = 0;
  int64_t received_messages = 0;
  int64_t most_messages = 0;  // that one rank sends and receives
  int64_t most_peers = 0;     // ranks of other hosts with which one rank exchanges messages
  int64_t all_peers = 0;      // the sum over the host's ranks
  int64_t meetings = 0;       // of its ranks
  int64_t copied_bytes = 0;   // that one rank copies or adds up
};

// Memory of a communicator of a host with so many ranks, and of the call, in bytes.
struct PredictedMemory {
  int64_t segment_bytes = 0;  // shared by the host's ranks: board of the group, and backend shm
  int64_t heads_bytes = 0;    // of a rank
  int64_t scratch_bytes = 0;  // of a rank, for the call
  int64_t shared_bytes = 0;   // of a rank, for slices that its host reads
  int64_t plan_bytes = 0;     // of a rank, for the plans of a reduction
};

struct Prediction {
  int64_t trips = 0;  // between hosts, one after the other
  std::vector<PredictedHost> hosts;
  std::vector<PredictedMemory> memory;  // by host: that of the rank with most
  std::vector<int64_t> link_bytes;      // from host i to host j at [i * hosts + j]
};

}  // namespace collops

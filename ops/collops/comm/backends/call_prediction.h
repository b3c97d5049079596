#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops {

// What hosts and the network between them cost. Times in microseconds, rates in bytes per
// microsecond (MB/s). A value.
struct LinkCosts {
  double message_us = 0;    // of the CPU at either end, for a message or stream
  double latency_us = 0;    // from sent to arrived
  double network_rate = 1;  // of a host's network device, in each direction
  // CPU at either end of so many bytes between two ranks, beside message_us: linear between points,
  // the first of which follows on (0, 0), and in proportion beyond the last.
  std::vector<std::pair<int64_t, double>> stream_us;
  double meeting_us = 0;   // for the ranks of a host to have heard each other
  double copy_rate = 1;    // one rank copies
  double memory_rate = 1;  // all ranks of a host copy together
  // 0: each rank has a core. Else the ranks of all hosts share so many, as hosts that are network
  // namespaces do: rank r runs on core r % cores.
  int shared_cores = 0;
  double turn_us = 0;  // how long a rank that waits keeps a shared core before it yields
};

// A call that nobody makes: ranks on hosts, and the elements of each rank's block or slice.
struct CallToPredict {
  bool reduces = false;  // ReduceScatterV; else AllGatherV
  std::vector<int> host_of;
  std::vector<int64_t> counts;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  LinkCosts costs;
};

// What a call costs one host. Bytes and messages are those between hosts: heads, chunks of data,
// and the empty messages that end streams; no headers, and none of the small ones that grant
// credit.
struct PredictedHost {
  int64_t sent_bytes = 0;
  int64_t received_bytes = 0;
  int64_t sent_messages = 0;
  int64_t received_messages = 0;
  int64_t most_peers = 0;  // ranks of other hosts with which one rank exchanges messages
  int64_t all_peers = 0;   // the sum over the host's ranks
  int64_t meetings = 0;    // of its ranks
  double time_us = 0;      // until the last rank of the host is done
  // Within it, on the busiest rank or device: sending or receiving; CPU for messages; copies and
  // sums; meetings.
  double network_us = 0;
  double messages_us = 0;
  double copies_us = 0;
  double meetings_us = 0;
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
  double time_us = 0;
  std::vector<PredictedHost> hosts;
  std::vector<PredictedMemory> memory;  // by host: that of the rank with most
  std::vector<int64_t> link_bytes;      // from host i to host j at [i * hosts + j]
};

}  // namespace collops

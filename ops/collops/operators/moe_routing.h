#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collops/comm/communicator.h"
#include "collops/comm/window.h"
#include "collops/core/status.h"
#include "collops/kernels/rows.h"
#include "collops/operators/plain/row_blocks.h"

namespace collops {

// The rows that a rank's tokens make, one for each of a token's experts, and where they go. Experts
// are split evenly over the ranks; both lists of counts have local_experts numbers for each rank,
// those of rank 0 first.
struct MoeRouting {
  int64_t tokens = 0;
  int64_t top_k = 0;
  int64_t local_experts = 0;       // of each rank
  Rows send_counts;                // this rank's rows for each expert
  Rows recv_counts;                // rows of each rank for each of this rank's experts
  std::vector<int64_t> positions;  // of (token, k) among the rows sent, by expert; -1: no row
  int64_t digest = 0;              // of all ranks' counts; 0: not known

  int64_t sent() const { return SumOf(send_counts); }
  int64_t received() const { return SumOf(recv_counts); }
};

// A routing that a caller has kept, for `tokens` tokens; of a combine they are not known before.
Status CheckRouting(const char* method, const MoeRouting& routing, const Communicator& communicator,
                    std::optional<int64_t> tokens);

// Whether rows travel in the order in which a dispatch leaves them.
bool IsInOrder(const MoeRouting& routing, int rank_size);

// Where the rows of each rank and expert lie that a dispatch receives: from, rank by rank, as they
// travel; to, expert by expert.
std::vector<kernels::RowRange> ReceivedRows(const MoeRouting& routing, int rank_size);

// Memory that the calls of one communicator keep for the rows that they send: a window, which other
// ranks read in place, where the backend has them. One call at a time uses it.
class SentRows {
 public:
  Status Take(const char* method, Communicator* communicator, int64_t bytes, char** data);

 private:
  std::shared_ptr<Window> window_;
};

// The exchange of a routing's rows. Owned by one call.
class MoeExchange {
 public:
  // `operation` is the call's name among the ranks; `goes_back`: what was received is sent.
  MoeExchange(const char* method, const char* operation, const MoeRouting& routing, bool goes_back);

  // To which the call adds what else the ranks agree on.
  Agreement* agreement() { return &agreement_; }

  // For rows of `stride` bytes; takes memory for what is `sent`, and scratch memory of this thread
  // for what is `received`, where these are asked for.
  Status Prepare(Communicator* communicator, int64_t stride, SentRows* memory, char** sent,
                 char** received);
  Status Run(Communicator* communicator, const void* x, void* output) const;

 private:
  const char* const method_;
  Agreement agreement_;
  const Rows sends_;  // rows for each rank
  const Rows receives_;
  RowBlocks send_blocks_;
  RowBlocks receive_blocks_;
};

}  // namespace collops

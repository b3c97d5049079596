#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/peers/region.h"

namespace collops::cuda_peers {

// The agreements of the last calls of every rank, in memory that the ranks of the host share.
// Kernels compare digests alone, after the call has returned; what differs is looked up here. A
// call whose terms are in the table is not written again. One thread at a time writes and reads.
class CallTable {
 public:
  static int64_t Bytes(int rank_size);

  CallTable(std::byte* memory, int rank, int rank_size)
      : memory_(memory), rank_(rank), size_(rank_size) {}

  // Before the call is put on its stream. `call`: the number of the user's call.
  void Write(const Agreement& agreement, uint64_t call);

  // What the ranks disagree in, with the terms that kernels have found; `who` names a rank.
  Status Describe(const cuda::Verdict& verdict, const std::function<std::string(int)>& who) const;

 private:
  // Calls of a rank with different terms, of which the last are kept.
  static constexpr int kCalls = 16;
  struct Written {
    Agreement agreement;  // only its terms' names are used later
    uint64_t identity;
    uint64_t call;
  };

  static int64_t SlotWords(int rank_size);
  int64_t* Slot(int rank, int index) const;
  // The encoding of a rank's call with these terms; empty if it is no longer there.
  std::vector<int64_t> Find(int rank, uint64_t digest, uint64_t balance) const;

  std::byte* const memory_;
  const int rank_;
  const int size_;
  std::vector<Written> written_;  // by slot
  int next_ = 0;
};

}  // namespace collops::cuda_peers

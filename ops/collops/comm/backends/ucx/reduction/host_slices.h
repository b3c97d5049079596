#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collops/comm/backends/ucx/reduction/reduction_plan.h"
#include "collops/comm/call.h"
#include "collops/comm/fused_call.h"

namespace collops::ucx {

// The slices of a host's ranks that another rank of the host reduces. Each rank copies its own,
// chunk by chunk, into its window of a fused call of the host, and its peers read them there. Lives
// during one call; one thread; waits for no one.
class HostSlices {
 public:
  // `plans`: by owner. `chunk`: elements of a chunk.
  HostSlices(const HostMap& hosts, const std::vector<ReductionPlan>& plans,
             const ReduceScatterVCall& call, int64_t chunk);

  // The size of the window, equal on every rank of the host; 0: no slice is read by another rank.
  int64_t window_bytes() const { return window_bytes_; }

  // The host's fused call has begun.
  void Begin(FusedCall* call) { call_ = call; }
  bool CanStage() const;
  // Copies the next chunk of this rank.
  void Stage();
  bool staged() const { return next_ == Own().positions; }

  // The address of a chunk of a slice of another rank of this host; null: it is not there yet.
  Status Find(int rank, int owner, int64_t chunk, const std::byte** data) const;

 private:
  // The slices that one rank shares. They are staged in rounds: chunk 0 of all, chunk 1 of all.
  struct Shared {
    std::vector<int> owners;
    std::vector<int64_t> offsets;  // of each slice in the window, in bytes
    int64_t positions = 0;         // of chunks; those past a slice's end are empty
  };
  const Shared& Own() const { return shared_[static_cast<size_t>(hosts_.own_index())]; }

  const HostMap& hosts_;
  const ReduceScatterVCall& slices_;
  const int64_t item_;
  const int64_t chunk_;
  std::vector<Shared> shared_;  // by local index
  int64_t window_bytes_ = 0;
  FusedCall* call_ = nullptr;
  int64_t next_ = 0;
};

}  // namespace collops::ucx

#include "collops/comm/backends/ucx/reduction/host_slices.h"

#include <algorithm>

#include "collops/kernels/copy/copy.h"

namespace collops::ucx {
namespace {

// The one signal of each rank: how many chunks it has staged.
constexpr int kStaged = 0;

}  // namespace

HostSlices::HostSlices(const HostMap& hosts, const std::vector<ReductionPlan>& plans,
                       const ReduceScatterVCall& call, int64_t chunk)
    : hosts_(hosts), slices_(call), item_(SizeOf(call.dtype)), chunk_(chunk) {
  for (const int rank : hosts.own_ranks()) {
    Shared shared;
    int64_t bytes = 0;
    int64_t rounds = 0;
    for (size_t owner = 0; owner < plans.size(); ++owner) {
      const int64_t count = call.send_counts[owner];
      if (count == 0 || !IsShared(plans[owner], rank)) continue;
      shared.owners.push_back(static_cast<int>(owner));
      shared.offsets.push_back(bytes);
      bytes += count * item_;
      rounds = std::max(rounds, (count + chunk - 1) / chunk);
    }
    shared.positions = rounds * static_cast<int64_t>(shared.owners.size());
    shared_.push_back(std::move(shared));
    window_bytes_ = std::max(window_bytes_, bytes);
  }
}

bool HostSlices::CanStage() const {
  return call_ != nullptr && !staged() && call_->window()->IsFree();
}

void HostSlices::Stage() {
  const Shared& own = Own();
  const auto number = static_cast<int64_t>(own.owners.size());
  const auto slice = static_cast<size_t>(next_ % number);
  const auto owner = static_cast<size_t>(own.owners[slice]);
  const int64_t begin = std::min(next_ / number * chunk_, slices_.send_counts[owner]);
  const int64_t count = std::min(chunk_, slices_.send_counts[owner] - begin);
  if (count > 0) {
    const auto* const x = static_cast<const std::byte*>(slices_.x);
    kernels::Copy(call_->window()->data() + own.offsets[slice] + begin * item_,
                  x + (slices_.sdispls[owner] + begin) * item_, count * item_);
  }
  call_->window()->Signal(kStaged, ++next_);
}

Status HostSlices::Find(int rank, int owner, int64_t chunk, const std::byte** data) const {
  *data = nullptr;
  const int index = hosts_.LocalIndex(rank);
  const Shared& shared = shared_[static_cast<size_t>(index)];
  const auto slice =
      std::lower_bound(shared.owners.begin(), shared.owners.end(), owner) - shared.owners.begin();
  const int64_t position = chunk * static_cast<int64_t>(shared.owners.size()) + slice;
  if (!call_->HasAnnounced(index) || call_->window()->Signalled(index, kStaged) <= position) {
    return Ok();
  }
  const std::byte* window = nullptr;
  COLLOPS_RETURN_IF_ERROR(call_->window()->PeerData(index, &window));
  *data = window + shared.offsets[static_cast<size_t>(slice)] + chunk * chunk_ * item_;
  return Ok();
}

}  // namespace collops::ucx

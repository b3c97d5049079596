#include <algorithm>
#include <numeric>
#include <vector>

#include "collops/comm/backends/cuda/engine.h"
#include "collops/comm/control/control.h"
#include "collops/core/deadline.h"
#include "collops/core/process/interrupt.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda_peers {
namespace {

// A slot of a worker: long enough that signals do not matter, and short enough that a sender and a
// receiver work at the same time.
constexpr int64_t kSlotBytes = int64_t{256} << 10;

}  // namespace

// How many blocks the kernels may have, and whether data is read where it lies: where all ranks are
// threads of one process on one GPU, so that any address of one is one of all.
void Engine::Arrange(const std::vector<Place>& places) {
  const Place& own = places[static_cast<size_t>(rank_)];
  group_ = {};
  group_.rank = rank_;
  group_.size = size_;
  most_blocks_ = BlocksOf(places, own);
  sharers_ = SharersOf(places, own);
  NoteSharers(places, own);
  device_ = own.device;
  shares_device_ = std::count_if(places.begin(), places.end(), [&](const Place& other) {
                     return InOneProcess(own.home, other.home) && OnOneDevice(own.home, other.home);
                   }) > 1;
  const bool is_direct = std::all_of(places.begin(), places.end(), [&](const Place& other) {
    return InOneProcess(own.home, other.home) && OnOneDevice(own.home, other.home);
  });
  group_.is_direct = is_direct ? 1 : 0;
  if (!is_direct) {
    int workers = cuda::kMostWorkers;
    for (const Place& place : places) workers = std::min(workers, BlocksOf(places, place));
    group_.num_workers = workers;
    group_.slot_bytes = kSlotBytes;
  }
  share_.blocks_beside = share_.ranks * WorkersBeside();
}

// Makes this rank's region, which needs no peer.
Status Engine::MakeRegion(const std::vector<Place>& places, int device) {
  Arrange(places);
  // The first step's number is one that no earlier communicator is likely to have had in this
  // memory.
  const auto last_step = static_cast<uint32_t>(places[0].draw);
  COLLOPS_RETURN_IF_ERROR(memory_.Allocate(device, group_.Layout().Bytes(), last_step,
                                           [this] { return MayAllocate(); }));
  table_.emplace(control_->backend_memory(), rank_, size_);
  return Ok();
}

// Waits until no kernel of this process runs that may wait for its peers.
Status Engine::MayAllocate() {
  const Deadline deadline = Deadline::After(control_->timeout_s());
  return cuda::RunningCalls::Await(driver_, [&]() -> Status {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kFirstContact, ": rank ", rank_,
                      " was interrupted");
    COLLOPS_RETURN_IF_ERROR(control_->Peek(kFirstContact));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, kFirstContact,
                      ": a call of another communicator of this process did not end within ",
                      deadline.timeout_s(), " s, and no memory can be allocated while it runs");
    return Ok();
  });
}

// The ranks tell each other where they run, then where their regions are; and each says whether it
// could open those of all others before any kernel uses one.
Status Engine::Meet(control::Control* control, bool compares, int device) {
  control_ = control;
  COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  Place own = {};
  COLLOPS_RETURN_IF_ERROR(FindPlace(driver_, device, kernels_.MostWaitingBlocks(), &own));
  std::vector<Place> places(static_cast<size_t>(size_));
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares ? "1" : "0");
  COLLOPS_RETURN_IF_ERROR(control->Share(agreement, &own, sizeof(own), places.data()));
  std::vector<cuda::Home> homes;
  for (const Place& place : places) homes.push_back(place.home);
  cuda::WarnOfSharing(driver_, device, rank_, homes);
  share_ = ShareOf(homes);

  std::vector<SlabPart> parts(static_cast<size_t>(size_));
  const Status made = MakeRegion(places, device);
  if (!made.ok()) {
    static_cast<void>(control->Refuse(kFirstContact, made));
    return made;
  }
  const Agreement next(kFirstContact);
  COLLOPS_RETURN_IF_ERROR(control->Share(next, &memory_.own(), sizeof(SlabPart), parts.data()));
  const Status opened = memory_.Open(rank_, places, parts, [this] { return MayAllocate(); });
  std::vector<int> everyone(places.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  // What cannot be opened because a rank has left is that rank's fault, and the step has its
  // reason.
  if (!opened.ok() && control->FindLossAmong(everyone, true).ok()) {
    static_cast<void>(control->Refuse(kFirstContact, opened));
    return opened;
  }
  COLLOPS_RETURN_IF_ERROR(control->Agree(next));
  COLLOPS_RETURN_IF_ERROR(opened);

  for (int rank = 0; rank < size_; ++rank) group_.regions[rank] = memory_.region(rank);
  group_.stop = memory_.device_stop();
  group_.wait = memory_.device_wait();
  group_.verdict = memory_.device_verdict();
  is_connected_ = true;
  return Ok();
}

}  // namespace collops::cuda_peers

#include "comm/messenger.h"

#include <cstring>

#include "comm/pairs/pair_messages.h"
#include "core/interrupt.h"

namespace collops {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

// Of what both sides must agree on. A type that has a name of its own counts by that.
uint64_t Digest(const Transfer& transfer) {
  constexpr size_t kWords = sizeof(transfer.type) / sizeof(uint64_t);
  uint64_t words[kWords];
  std::memcpy(words, transfer.type, sizeof(words));
  const bool named = transfer.type[0] != '\0';
  uint64_t hash = Mix(1, named ? 0 : static_cast<uint64_t>(transfer.dtype) + 1);
  for (const uint64_t word : words) hash = Mix(hash, named ? word : 0);
  return Mix(hash, static_cast<uint64_t>(transfer.elements));
}

std::string DescribeCall(const Transfer& transfer) {
  const bool sends = transfer.way == Transfer::kSend;
  return Concat(NameOf(transfer.way), sends ? " to " : " from ",
                transfer.peer == kAnySource ? "any rank" : Concat("rank ", transfer.peer), " (tag ",
                transfer.tag, ")");
}

}  // namespace

Status CheckTransfers(const char* name, const Transfer* list, int count, int rank_size) {
  for (int i = 0; i < count; ++i) {
    const Transfer& transfer = list[i];
    const bool any = transfer.way == Transfer::kRecv && transfer.peer == kAnySource;
    CHECK_ARG(any || (transfer.peer >= 0 && transfer.peer < rank_size), ERROR_INVALID_PARAM, name,
              ": the ", transfer.way == Transfer::kSend ? "receiver" : "source", " must be in [0, ",
              rank_size, "), got ", transfer.peer);
    CHECK_ARG(transfer.tag >= 0, ERROR_INVALID_PARAM, name, ": tag must be >= 0, got ",
              transfer.tag);
  }
  return Ok();
}

Messenger::Messenger(control::Control* control, PairWire* wire)
    : control_(control),
      endpoint_(&control->endpoint()),
      lane_(endpoint_->rank(), endpoint_->size(), wire, this) {
  control->set_pump([this] { Pump(); });
}

Status Messenger::Run(const char* name, Transfer* list, int count) {
  std::unique_lock<std::mutex> baton(baton_);
  handles_.clear();
  first_open_ = 0;
  for (int i = 0; i < count; ++i) {
    list[i].digest = Digest(list[i]);
    handles_.push_back(lane_.Post(list[i]));
  }
  Wait wait{name, list, {}};
  const Status waited = Await(&wait, &baton);
  if (!waited.ok()) lane_.End(waited);
  if (!lane_.failure().ok()) Publish();
  Status outcome;
  for (int i = 0; i < count; ++i) {
    const Status ended = lane_.Collect(handles_[static_cast<size_t>(i)], &list[i].source);
    if (outcome.ok() && !ended.ok()) outcome = ended;
  }
  return outcome.ok() ? Ok() : control_->Excuse(outcome);
}

Status Messenger::Refuse(const Transfer* list, int count, const Status& why) {
  const std::lock_guard<std::mutex> baton(baton_);
  for (int i = 0; i < count; ++i) lane_.Refuse(list[i], why);
  if (!lane_.failure().ok()) Publish();
  return Ok();
}

void Messenger::Pump() {
  if (!lane_.HasWork()) return;
  const std::unique_lock<std::mutex> baton(baton_, std::try_to_lock);
  if (!baton.owns_lock()) return;
  lane_.Poll();
  if (!lane_.failure().ok()) Publish();
}

void Messenger::Publish() {
  static_cast<void>(control_->Fail(lane_.failure(), control_->step_number() + 1));
}

bool Messenger::AllDone() {
  while (first_open_ < handles_.size() && lane_.Done(handles_[first_open_])) ++first_open_;
  return first_open_ == handles_.size();
}

// As long as something moves, the rank counts as busy. It naps without the baton.
Status Messenger::Await(Wait* wait, std::unique_lock<std::mutex>* baton) {
  control::Patience patience;
  int spins = 0;
  bool noted = false;
  Status looked;
  while (!AllDone() && looked.ok()) {
    if (lane_.Poll()) {
      spins = 0;
      patience = {};
    } else if (spins < control::kSpins) {
      ++spins;
      control::CpuRelax();
    } else if (!patience.Yield()) {
      if (!noted) endpoint_->NotePairCall(DescribeCall(wait->list[first_open_]));
      noted = true;
      looked = Look(wait);
      if (!looked.ok()) break;
      baton->unlock();
      bool moved = false;
      endpoint_->Nap(control::kPairLane, [&] {
        const std::lock_guard<std::mutex> again(baton_);
        moved = lane_.Poll();
        return moved || AllDone();
      });
      baton->lock();
      if (moved) spins = 0;
    }
  }
  if (noted) endpoint_->NotePairCall("");
  return looked;
}

// Before every nap.
Status Messenger::Look(Wait* wait) {
  CHECK_ARG(!Interrupted(), ERROR_ABORTED, wait->name, ": rank ", endpoint_->rank(),
            " was interrupted");
  control_->Drain();
  FindLosses();
  if (!wait->deadline) wait->deadline = Deadline::After(control_->spec().timeout_s);
  return wait->deadline->Passed() ? DescribeTimeout(*wait) : Ok();
}

void Messenger::FindLosses() {
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (!lane_.WaitsFor(r)) continue;
    bool said = false;
    const Status loss = endpoint_->FindDeparture(r, &said);
    const auto departure = said ? PairLane::Departure::kLeft : PairLane::Departure::kEnded;
    if (!loss.ok()) lane_.Lose(r, departure, loss);
  }
}

Status Messenger::DescribeTimeout(const Wait& wait) {
  std::string peers;
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r != endpoint_->rank() && lane_.WaitsFor(r)) peers += "; " + endpoint_->DescribeRank(r);
  }
  return Error(ERROR_TIMEOUT, wait.name, ": no end in ", control_->spec().timeout_s,
               " s: ", lane_.Describe(), peers);
}

}  // namespace collops

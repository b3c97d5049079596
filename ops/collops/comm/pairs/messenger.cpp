#include "collops/comm/pairs/messenger.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace collops {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 32);
}

// Hash of what both sides must agree on. A type that has a name counts by its name.
uint64_t Digest(const Transfer& transfer) {
  const auto elements = static_cast<uint64_t>(transfer.elements);
  if (transfer.type[0] == '\0') {
    return Mix(Mix(1, static_cast<uint64_t>(transfer.dtype) + 1), elements);
  }
  constexpr size_t kWords = sizeof(transfer.type) / sizeof(uint64_t);
  uint64_t words[kWords];
  std::memcpy(words, transfer.type, sizeof(words));
  uint64_t hash = Mix(1, 0);
  for (const uint64_t word : words) hash = Mix(hash, word);
  return Mix(hash, elements);
}

}  // namespace

Status CheckTransfers(const char* name, const Transfer* list, int count, int rank_size) {
  for (int i = 0; i < count; ++i) {
    const Transfer& transfer = list[i];
    const bool any = transfer.way == Transfer::kRecv && transfer.peer == kAnySource;
    COLLOPS_CHECK_ARG(any || (transfer.peer >= 0 && transfer.peer < rank_size), ERROR_INVALID_PARAM,
                      name, ": the ", transfer.way == Transfer::kSend ? "receiver" : "source",
                      " must be in [0, ", rank_size, "), got ", transfer.peer);
    COLLOPS_CHECK_ARG(transfer.tag >= 0, ERROR_INVALID_PARAM, name, ": tag must be >= 0, got ",
                      transfer.tag);
  }
  return Ok();
}

Messenger::Messenger(control::Control* control, PairWire* wire)
    : control_(control),
      endpoint_(&control->endpoint()),
      wire_(wire),
      lane_(endpoint_->rank(), endpoint_->size(), wire, this) {
  control->set_pump([this] { return Pump(); }, [this] { return DozeInCall(); });
}

Status Messenger::Run(const char* name, Transfer* list, int count) {
  Baton baton = Claim();
  TakeStarted();
  for (int i = 0; i < count; ++i) list[i].digest = Digest(list[i]);
  const bool begun = lane_.BeginDirect(list, count);
  if (!begun || !RunDirect()) return RunInLane(name, list, count, begun, &baton);
  for (int i = 0; i < count; ++i) {
    if (list[i].way == Transfer::kRecv) list[i].source = list[i].peer;
  }
  HandOver(&baton);
  return Ok();
}

Status Messenger::RunInLane(const char* name, Transfer* list, int count, bool begun, Baton* baton) {
  Batch another;
  const bool first = !std::exchange(own_used_, true);
  Batch& batch = first ? own_ : another;
  batch.name = name;
  batch.list.assign(list, list + count);
  batch.ended.store(false);
  if (begun) {
    batch.first_open = 0;
    batch.handles.resize(batch.list.size());
    lane_.HandOverDirect(batch.handles.data());
    if (!lane_.failure().ok()) Publish();
  } else {
    Post(&batch);
  }
  Goal goal;
  goal.name = name;
  goal.batch = &batch;
  const Status waited = Await(&goal, baton);
  for (int i = 0; i < count; ++i) list[i].source = batch.list[static_cast<size_t>(i)].source;
  if (first) own_used_ = false;
  return waited;
}

Status Messenger::Refuse(const Transfer* list, int count, const Status& why) {
  Baton baton = Claim();
  TakeStarted();
  for (int i = 0; i < count; ++i) lane_.Refuse(list[i], why);
  if (!lane_.failure().ok()) Publish();
  HandOver(&baton);
  return Ok();
}

void Messenger::Start(const std::shared_ptr<Batch>& batch) {
  {
    const std::lock_guard<std::mutex> lock(started_mutex_);
    started_.push_back(batch);
    has_started_.store(true);
  }
  Baton baton(baton_, std::try_to_lock);
  if (!baton.owns_lock()) {
    // A leading thread looks again before it sleeps; a thread that has the baton briefly may not.
    Rouse();
    if (wake_) wake_();
    return;
  }
  TakeStarted();
  Poll();
  HandOver(&baton);
  const auto ended = TakeEnded();
  baton.unlock();
}

Status Messenger::Wait(Batch* batch, const std::optional<Deadline>& deadline) {
  Baton baton = Claim();
  TakeStarted();
  Goal goal;
  goal.name = batch->name;
  goal.batch = batch;
  goal.deadline = deadline;
  const Status outcome = Await(&goal, &baton);
  const auto ended = TakeEnded();
  baton.unlock();
  return outcome;
}

bool Messenger::Test(Batch* batch) {
  if (batch->ended.load()) return true;
  const Baton baton(baton_, std::try_to_lock);
  if (!baton.owns_lock()) return false;  // another thread is in the lane: a later call says more
  TakeStarted();
  Poll();
  return HasEnded(batch);
}

void Messenger::End(const Status& why) {
  Baton baton = Claim();
  TakeStarted();
  lane_.End(why);
  moved_.notify_all();
  Rouse();
  const auto ended = TakeEnded();
  baton.unlock();
}

void Messenger::Post(Batch* batch) {
  batch->handles.clear();
  batch->first_open = 0;
  for (Transfer& transfer : batch->list) {
    transfer.digest = Digest(transfer);
    batch->handles.push_back(lane_.Post(transfer));
  }
}

bool Messenger::TakeStarted() {
  if (!has_started_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard<std::mutex> lock(started_mutex_);
  for (std::shared_ptr<Batch>& batch : started_) {
    Post(batch.get());
    open_.push_back(std::move(batch));
  }
  started_.clear();
  has_started_.store(false);
  return true;
}

std::vector<std::shared_ptr<Batch>> Messenger::TakeEnded() {
  std::vector<std::shared_ptr<Batch>> ended;
  const auto open = std::stable_partition(
      open_.begin(), open_.end(), [this](const auto& batch) { return !HasEnded(batch.get()); });
  std::move(open, open_.end(), std::back_inserter(ended));
  open_.erase(open, open_.end());
  return ended;
}

bool Messenger::Poll() {
  const bool moved = lane_.Poll();
  if (moved && !lane_.failure().ok()) Publish();
  if (moved && followers_ > 0) moved_.notify_all();
  return moved;
}

void Messenger::Publish() {
  static_cast<void>(control_->Fail(lane_.failure(), control_->step_number() + 1));
}

// Collects the outcomes of its messages, once all of them are done.
bool Messenger::HasEnded(Batch* batch) {
  if (batch->ended.load()) return true;
  const size_t count = batch->list.size();
  if (batch->handles.size() < count) return false;
  while (batch->first_open < count && lane_.Done(batch->handles[batch->first_open])) {
    ++batch->first_open;
  }
  if (batch->first_open < count) return false;
  Status outcome;
  for (size_t i = 0; i < count; ++i) {
    const Status ended = lane_.Collect(batch->handles[i], &batch->list[i].source);
    if (outcome.ok() && !ended.ok()) outcome = ended;
  }
  batch->outcome = outcome;
  batch->ended.store(true);
  return true;
}

}  // namespace collops

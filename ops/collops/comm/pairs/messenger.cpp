#include "collops/comm/pairs/messenger.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

#include "collops/comm/pairs/pair_lane.h"
#include "collops/core/cpu_relax.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/trace/spans.h"

// How threads wait in the pair lane, and which of them moves it.
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

void Batch::Set(const char* called, const Transfer* transfers, int count) {
  name = called;
  list.resize(static_cast<size_t>(count));
  for (OpenTransfer& open : list) open.transfer = *transfers++;
  posted = false;
  first_open = 0;
  if (!outcome.ok()) outcome = Ok();
  ended.store(false, std::memory_order_relaxed);
}

Messenger::Messenger(control::Control* control, const PairWires& wires)
    : control_(control),
      endpoint_(&control->endpoint()),
      remote_(wires.remote),
      lane_(wires, endpoint_) {
  control->set_progress_messages([this] { return ProgressMessages(); },
                                 [this] { return WakeConditionInCall(); });
}

Status Messenger::Run(const char* name, Transfer* list, int count) {
  LaneLock lane_lock = LockLane();
  TakeStarted();
  // After an exception the batch stays: the lane has addresses of its transfers.
  const auto free = std::find_if(of_calls_.begin(), of_calls_.end(),
                                 [](const Batch& each) { return !each.used; });
  Batch& batch = free == of_calls_.end() ? of_calls_.emplace_back() : *free;
  batch.used = true;
  batch.Set(name, list, count);
  Post(&batch);
  Status outcome;
  if (PollBriefly(&batch)) {
    outcome = std::move(batch.outcome);
    HandOver(&lane_lock);
  } else {
    Goal goal;
    goal.name = name;
    goal.batch = &batch;
    outcome = Await(&goal, &lane_lock);
  }
  for (const OpenTransfer& open : batch.list) (list++)->source = open.source;
  batch.used = false;
  return outcome;
}

Status Messenger::Refuse(const Transfer* list, int count, const Status& why) {
  LaneLock lane_lock = LockLane();
  TakeStarted();
  for (int i = 0; i < count; ++i) lane_.Refuse(list[i], why);
  if (!lane_.failure().ok()) Publish();
  HandOver(&lane_lock);
  return Ok();
}

void Messenger::Start(const std::shared_ptr<Batch>& batch) {
  {
    const std::lock_guard<std::mutex> lock(started_mutex_);
    started_.push_back(batch);
    has_started_.store(true);
  }
  LaneLock lane_lock(lane_mutex_, std::try_to_lock);
  if (!lane_lock.owns_lock()) {
    // A leading thread looks again before it sleeps; a thread that has its lock briefly may not.
    WakeSleeper();
    if (wake_) wake_();
    return;
  }
  TakeStarted();
  Poll();
  HandOver(&lane_lock);
  const auto ended = TakeEnded();
  lane_lock.unlock();
}

Status Messenger::Wait(Batch* batch, const std::optional<Deadline>& deadline) {
  LaneLock lane_lock = LockLane();
  TakeStarted();
  Goal goal;
  goal.name = batch->name;
  goal.batch = batch;
  goal.deadline = deadline;
  const Status outcome = Await(&goal, &lane_lock);
  const auto ended = TakeEnded();
  lane_lock.unlock();
  return outcome;
}

bool Messenger::Test(Batch* batch) {
  if (batch->ended.load()) return true;
  const LaneLock lane_lock(lane_mutex_, std::try_to_lock);
  if (!lane_lock.owns_lock())
    return false;  // another thread is in the lane: a later call says more
  TakeStarted();
  Poll();
  return HasEnded(batch);
}

void Messenger::End(const Status& why) {
  LaneLock lane_lock = LockLane();
  TakeStarted();
  lane_.End(why);
  moved_.notify_all();
  WakeSleeper();
  const auto ended = TakeEnded();
  lane_lock.unlock();
}

void Messenger::Post(Batch* batch) {
  batch->posted = true;
  for (OpenTransfer& open : batch->list) {
    open.transfer.digest = Digest(open.transfer);
    lane_.Post(&open);
  }
}

bool Messenger::TakeStarted() {
  if (!has_started_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard<std::mutex> lock(started_mutex_);
  for (const std::shared_ptr<Batch>& batch : started_) {
    if (batch->posted) continue;  // an exception came after it
    open_.push_back(batch);
    Post(batch.get());
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
  if (batch->ended.load(std::memory_order_relaxed)) return true;
  if (!batch->posted) return false;
  for (; batch->first_open < batch->list.size(); ++batch->first_open) {
    const OpenTransfer& open = batch->list[batch->first_open];
    if (!open.done) return false;
    if (batch->outcome.ok() && !open.outcome.ok()) batch->outcome = open.outcome;
  }
  batch->ended.store(true, std::memory_order_release);
  return true;
}

namespace {

// A peer that waits for what this rank has posted takes it at once; another one is not waited for.
constexpr double kFlushS = 0.2;

std::string DescribeCall(const Transfer& transfer) {
  const bool sends = transfer.way == Transfer::kSend;
  return Concat(WordOf(transfer), sends ? " to " : " from ",
                transfer.peer == kAnySource ? "any rank" : Concat("rank ", transfer.peer), " (tag ",
                transfer.tag, ")");
}

}  // namespace

bool Messenger::NeedsAttention() const {
  return (lane_.HasWork() || has_started_.load()) && !led_.load();
}

void Messenger::Attend(const std::function<bool()>& enough) {
  LaneLock lane_lock = LockLane();
  if (led_.load()) return;
  TakeStarted();
  Goal goal;
  goal.enough = &enough;
  attends_ = true;
  static_cast<void>(Lead(&goal, &lane_lock));
}

Messenger::LaneLock Messenger::LockLane() {
  LaneLock free(lane_mutex_, std::try_to_lock);
  if (free.owns_lock()) return free;
  lock_waiters_.fetch_add(1);
  LaneLock lane_lock(lane_mutex_);
  lock_waiters_.fetch_sub(1);
  return lane_lock;
}

void Messenger::Yield(LaneLock* lane_lock) {
  if (lock_waiters_.load(std::memory_order_relaxed) == 0) return;
  lane_lock->unlock();
  while (lock_waiters_.load() > 0) sched_yield();
  lane_lock->lock();
}

void Messenger::Settle(double limit_s) {
  const LaneLock lane_lock(lane_mutex_, std::try_to_lock);
  if (!lane_lock.owns_lock() || led_.load() || !lane_.OwesVerdicts()) return;
  const Deadline deadline = Deadline::After(limit_s);
  while (lane_.OwesVerdicts() && lane_.failure().ok() && !deadline.Passed()) {
    if (!Poll()) sched_yield();
  }
}

void Messenger::SettleAll(double limit_s) {
  const Deadline deadline = Deadline::After(limit_s);
  while (OwesVerdicts() && !deadline.Passed()) {
    Settle(deadline.RemainingS());
    if (OwesVerdicts()) sched_yield();
  }
  const LaneLock lane_lock = LockLane();
  if (lane_.failure().ok() && remote_ != nullptr) remote_->Flush(Deadline::After(kFlushS));
}

control::MessageProgress Messenger::ProgressMessages() {
  if (!NeedsAttention()) return control::MessageProgress::kNothing;
  const LaneLock lane_lock(lane_mutex_, std::try_to_lock);
  if (!lane_lock.owns_lock() || led_.load()) return control::MessageProgress::kNothing;
  const bool posted = TakeStarted();
  if (Poll() || posted) return control::MessageProgress::kMoved;
  if (!lane_.HasWork()) return control::MessageProgress::kNothing;
  return FindAwaited().unrung ? control::MessageProgress::kNoDoorbell
                              : control::MessageProgress::kUnderWay;
}

Messenger::Awaited Messenger::FindAwaited() const {
  Awaited awaited;
  awaited.unrung = remote_ != nullptr && !remote_->HandedOver();
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (lane_.WaitsFor(r)) (lane_.Rings(r) ? awaited.rung : awaited.unrung) = true;
  }
  return awaited;
}

control::WakeCondition Messenger::PrepareWakeCondition(const Awaited& awaited) {
  // Other threads of this rank ring the doorbell, too, which does not end this sleep.
  constexpr int kLongNapMs = 5;
  const int most_ms = awaited.rung ? control::kNoDoorbellSleepMs : kLongNapMs;
  if (!awaited.unrung) return {-1, most_ms};
  const int news = lane_.failure().ok() ? remote_->Arm() : -1;
  return {news, news < 0 ? 0 : most_ms};
}

// Another thread may lead the lane by now: the wait looks again.
control::WakeCondition Messenger::WakeConditionInCall() {
  const LaneLock lane_lock(lane_mutex_, std::try_to_lock);
  return !lane_lock.owns_lock() || led_.load() ? control::WakeCondition()
                                               : PrepareWakeCondition(FindAwaited());
}

bool Messenger::Reached(const Goal& goal) {
  if (goal.batch != nullptr) return HasEnded(goal.batch);
  return !lane_.HasWork() || followers_ > 0 || (*goal.enough)();
}

Status Messenger::Await(Goal* goal, LaneLock* lane_lock) {
  const recording::WaitSpan wait("wait for messages");
  Status looked;
  while (looked.ok() && !Reached(*goal)) {
    if (!led_.load()) {
      looked = Lead(goal, lane_lock);
    } else {
      if (attends_) WakeSleeper();  // it gives the lead to a thread that waits
      Follow(lane_lock);
      looked = Look(goal, lane_lock);
    }
  }
  // A leading thread may have passed the lane to this thread alone: pass it on.
  HandOver(lane_lock);
  if (!looked.ok()) {
    lane_.End(looked);
    // Unlike a failure of the lane, an interrupt also ends a group call that is under way.
    const uint64_t step = control_->step_number();
    const bool calls = !endpoint_->HasFinished(endpoint_->rank(), step);
    static_cast<void>(control_->Fail(lane_.failure(), calls ? step : step + 1));
    moved_.notify_all();
    WakeSleeper();
  }
  if (HasEnded(goal->batch)) return goal->batch->outcome;
  return looked;
}

// Waits while another thread leads, which notifies this one when something has moved.
void Messenger::Follow(LaneLock* lane_lock) {
  constexpr std::chrono::milliseconds kNap(20);
  ++followers_;
  moved_.wait_for(*lane_lock, kNap);
  --followers_;
}

// As long as messages move, the rank counts as busy. It sleeps without the lane_lock.
Status Messenger::Lead(Goal* goal, LaneLock* lane_lock) {
  led_.store(true);
  control::Backoff backoff(&spins_);
  int spins = 0;
  Status looked;
  while (looked.ok() && !Reached(*goal)) {
    Yield(lane_lock);
    const bool posted = TakeStarted();
    if (Poll() || posted) {
      spins = 0;
      backoff = control::Backoff(&spins_);
    } else if (spins < spins_.looks()) {
      ++spins;
      CpuRelax();
    } else if (!backoff.Yield()) {
      looked = Look(goal, lane_lock);
      if (looked.ok() && Nap(goal, lane_lock)) spins = 0;
    }
  }
  if (goal->noted) endpoint_->SetPairCall("");
  goal->noted = false;
  led_.store(false);
  attends_ = false;
  HandOver(lane_lock);
  return looked;
}

// As Lead(), until the first sleep: most messages are over after a few looks.
bool Messenger::PollBriefly(Batch* batch) {
  control::Backoff backoff(&spins_);
  int spins = 0;
  while (!HasEnded(batch)) {
    if (led_.load(std::memory_order_relaxed)) return false;
    if (Poll()) {
      spins = 0;
      backoff = control::Backoff(&spins_);
    } else if (lock_waiters_.load(std::memory_order_relaxed) > 0 ||
               has_started_.load(std::memory_order_relaxed)) {
      return false;
    } else if (spins < spins_.looks()) {
      ++spins;
      CpuRelax();
    } else if (!backoff.Yield()) {
      return false;
    }
  }
  return true;
}

// True if something has moved.
bool Messenger::Nap(Goal* goal, LaneLock* lane_lock) {
  if (Reached(*goal)) return true;  // reached while this thread did not hold the lock
  if (!goal->noted && goal->batch != nullptr) {
    endpoint_->SetPairCall(DescribeCall(goal->batch->list[goal->batch->first_open].transfer));
    goal->noted = true;
  }
  const Awaited awaited = FindAwaited();
  lane_lock->unlock();
  recording::WaitSpan::BeforeSleep();
  bool moved = false;
  const auto ready = [&] {
    const LaneLock again(lane_mutex_);
    moved = TakeStarted() || Poll();
    return moved || Reached(*goal);
  };
  if (!awaited.unrung) {
    endpoint_->SleepUntilRung(control::kPairLane, ready);
  } else if (!ready()) {
    LaneLock again(lane_mutex_);
    const control::WakeCondition wake_condition = PrepareWakeCondition(awaited);
    again.unlock();
    pollfd news = {wake_condition.descriptor, POLLIN, 0};
    if (wake_condition.most_ms > 0) poll(&news, 1, wake_condition.most_ms);
  }
  lane_lock->lock();
  return moved;
}

void Messenger::HandOver(LaneLock* lane_lock) {
  const bool unattended = NeedsAttention();
  if (unattended && followers_ > 0) moved_.notify_all();
  const bool nobody = unattended && followers_ == 0;
  if (!nobody) return;
  lane_lock->unlock();
  // Wakes a group call's wait that could move the lane, or else the thread that calls Attend().
  endpoint_->Ring(endpoint_->rank(), control::kGroupLane);
  if (wake_) wake_();
  lane_lock->lock();
}

// The checks before every sleep.
Status Messenger::Look(Goal* goal, LaneLock* lane_lock) {
  // The user's signal handlers run in here, and may close the communicator.
  lane_lock->unlock();
  const bool interrupted = goal->batch != nullptr && Interrupted();
  lane_lock->lock();
  COLLOPS_CHECK_ARG(!interrupted, ERROR_ABORTED, goal->name, ": rank ", endpoint_->rank(),
                    " was interrupted");
  control_->Drain();
  FindLosses();
  if (goal->batch == nullptr) return Ok();
  if (!goal->deadline) goal->deadline = Deadline::After(control_->timeout_s());
  return goal->deadline->Passed() ? DescribeTimeout(*goal) : Ok();
}

void Messenger::FindLosses() {
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (!lane_.WaitsFor(r)) continue;
    bool left = false;
    Status loss = endpoint_->FindDeparture(r, &left);
    const Status cut = loss.ok() && !lane_.Rings(r) ? remote_->Loss(r) : Ok();
    if (!cut.ok()) {
      loss = Error(cut.code(), endpoint_->Who(r), " is lost: ", cut.message());
    }
    const auto departure = left ? PairLane::Departure::kLeft : PairLane::Departure::kEnded;
    if (!loss.ok()) lane_.Lose(r, departure, loss);
  }
}

Status Messenger::DescribeTimeout(const Goal& goal) {
  std::string peers;
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r != endpoint_->rank() && lane_.WaitsFor(r)) peers += "; " + endpoint_->DescribeRank(r);
  }
  return Error(ERROR_TIMEOUT, goal.name, ": timed out after ", goal.deadline->timeout_s(),
               " s: ", lane_.Describe(), peers);
}

}  // namespace collops

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/waiter.h"
#include "collops/core/status.h"
#include "collops/core/trace/spans.h"

namespace collops::control {

// What a rank says for all ranks of its host: they have begun the step, and agree on it.
struct HostHead {
  uint64_t step = 0;  // as SignalHead::step
  uint64_t digest = 0;
  uint64_t balance = 0;  // the sum over the ranks of the host
};

// Carries the heads of hosts over a backend's own connections, which is faster than the watchers.
// A rank gets the heads of each other host from one rank there, its source. It judges nothing:
// stale heads of refused steps are delivered, too. Owned by the backend; used by Step alone.
class HeadCarrier {
 public:
  virtual ~HeadCarrier() = default;

  // One rank of every other host.
  virtual size_t num_sources() const = 0;
  virtual int source(size_t index) const = 0;

  // Sends the head to the ranks that get it from here; only if Sent(). A rank that is lost is left
  // out.
  virtual Status Send(const HostHead& head) = 0;
  // Whether everything has left.
  virtual bool Sent() = 0;
  // Moves what can be moved, without waiting.
  virtual void Progress() = 0;
  // The next head of a source, in the order in which it was sent; false if there is none.
  virtual bool Take(size_t index, HostHead* head) = 0;
  // Ok, or why nothing more can come from a source.
  virtual Status LossOf(size_t index) const = 0;
  // Sleeps until something may have arrived, or until `wake_condition` ends.
  virtual void Sleep(const WakeCondition& wake_condition) = 0;
};

// The steps of one rank, one after the other. A step publishes this rank's head, waits for the
// heads of all ranks, compares them, and ends. A backend writes its first signal between Begin()
// and Publish(), so that the head travels in it. Owned by Control; one thread at a time. Waits
// until the time-out in Begin() (after a refusal), AwaitAll(), AwaitRest(), Until(), End().
class Step {
 public:
  // `steps_before`: the first step follows this number, which is equal on every rank.
  Step(Endpoint* endpoint, const WaitDuties* duties, uint64_t steps_before)
      : endpoint_(endpoint), duties_(duties), number_(steps_before) {
    awaited_.reserve(static_cast<size_t>(endpoint->size()));
    endpoint->Finish(steps_before);
  }

  // Begins the next step. After a refused step it waits until all ranks have begun that one,
  // because there are two heads per rank. `agreement` must live until the end of the step.
  Status Begin(const Agreement& agreement, double timeout_s);
  // Publishes the head. A rank that reads it sees all that this rank wrote before.
  void Publish();
  // Publish() and AwaitAll(), where nothing is sent with the head. With a carrier, it takes the
  // agreement to the other hosts; the watchers sleep on unless there is something to explain.
  Status Agree();
  // Set at the same step on all ranks of a group with several hosts; null: there is none.
  void set_carrier(HeadCarrier* carrier) { carrier_ = carrier; }
  // Takes part in the next step with a refusal, without waiting for the other ranks.
  Status Refuse(const char* name, const Status& reason, double timeout_s);

  // Waits for the heads of all ranks and compares them. `on_arrival(rank)` reads what the backend
  // sent with the head; its error ends the step. After an error with refused() no data has moved,
  // and the next step may follow.
  template <typename OnArrival>
  Status AwaitAll(OnArrival&& on_arrival);
  Status AwaitAll() {
    return AwaitAll([](int) { return Ok(); });
  }
  // As AwaitAll(), for the heads that have arrived, without waiting.
  template <typename OnArrival>
  Status ReadArrived(OnArrival&& on_arrival);
  bool HasArrived(int rank) const {
    return std::find(awaited_.begin(), awaited_.end(), rank) == awaited_.end();
  }

  bool refused() const { return refused_; }
  // Begins a call, whose steps share one deadline: `deadline` if the call made first contact, else
  // the first wait sets it.
  void BeginCall(const std::optional<Deadline>& deadline) {
    refused_ = false;
    deadline_ = deadline;
  }
  // May be read by any thread.
  uint64_t number() const { return number_.load(std::memory_order_relaxed); }
  Endpoint& endpoint() const { return *endpoint_; }
  // For a wait of the backend's own.
  const WaitDuties& duties() const { return *duties_; }

  // All waits of a step use this loop; it ends when `ready` returns true.
  template <typename Ready>
  Status Until(Ready&& ready) {
    return waiter_->Until(ready);
  }
  Waiter& waiter() { return *waiter_; }
  // Looks for failures without waiting, while this rank computes.
  Status LookAround() const { return waiter_->LookAround(); }

  // Whether every rank has finished the previous step.
  bool PreviousFinished() const;
  // End(): this rank has finished reading; an error if the group has failed meanwhile.
  // EndTogether() also waits until every rank has finished: for a rank whose peers read its window
  // in place.
  Status End();
  Status EndTogether();

 private:
  void Enter(const char* name, double timeout_s);
  Status CatchUp(double timeout_s);
  // Waits for the next head, in the order of arrival, so that a refusal is noticed at once.
  Status AwaitNext(int* rank) {
    recording::WaitSpan wait("wait for ranks");
    auto next = awaited_.rend();
    int looks = 0;
    COLLOPS_RETURN_IF_ERROR(Until([&] {
      // The end of an earlier step's data may not have left yet, and other hosts wait for it.
      if (carrier_ != nullptr && ++looks > Spins::kMost) carrier_->Progress();
      next = std::find_if(awaited_.rbegin(), awaited_.rend(),
                          [&](int r) { return endpoint_->HasBegun(r, number()); });
      return next != awaited_.rend();
    }));
    *rank = *next;
    wait.set_awaited(*rank);
    awaited_.erase(std::next(next).base());
    return Ok();
  }
  void WriteHead(HeadKind kind);
  // As AwaitAll(); `agrees`: whether the heads that were compared before agree.
  template <typename OnArrival>
  Status AwaitHeads(bool agrees, OnArrival&& on_arrival);
  // Compares the heads that have arrived on the board, without waiting.
  template <typename OnArrival>
  Status CompareArrived(bool* agrees, OnArrival&& on_arrival);
  bool AnyArrived() const;

  // The parts of Agree() with a carrier: until the ranks of this host have begun the step, and
  // until the other hosts' heads have come.
  Status AwaitHost(bool* agrees);
  Status AwaitOtherHosts();
  // Until `ready`, an arrival on the board or the loss of a source.
  template <typename Ready>
  Status UntilCarried(Ready&& ready);
  bool TakeCarried(size_t* index);
  Status LossOfSource() const;
  Status AwaitDifference();

  // Compares the head of `rank`; sets `agrees` to false if it differs.
  Status Compare(int rank, bool* agrees) {
    const SignalHead& theirs = endpoint_->head(rank, number());
    // What a backend sends with its head lies behind it, in the next line.
    __builtin_prefetch(reinterpret_cast<const std::byte*>(&theirs) + kLineBytes / 2);
    const uint64_t word = theirs.step.load(std::memory_order_acquire);
    if (NumberOf(word) != number() || !IsCall(word)) return NoCall(rank, word);
    const uint64_t balance = theirs.balance.load(std::memory_order_relaxed);
    balance_ += balance;
    if (carrier_ != nullptr && !endpoint_->IsRemote(rank)) host_balance_ += balance;
    *agrees = *agrees && theirs.digest.load(std::memory_order_relaxed) == agreement_->digest();
    return Ok();
  }
  // The error for a head that has no call of this step.
  Status NoCall(int rank, uint64_t word);
  Status Judge(bool agrees);
  Status AwaitRest();
  Status Disagreement() const;
  // For a wait that ended with `status`: the disagreement among the ranks that have arrived, else
  // `status`. A rank that stays away must not hide a disagreement of the others.
  Status MissingOne(const Status& status) const;
  size_t EncodedWords() const {
    return static_cast<size_t>(Agreement::EncodedBytes(endpoint_->size())) / sizeof(int64_t);
  }
  std::vector<std::vector<int64_t>> ArrivedAgreements() const;
  std::string WhoIsMissing() const;

  Endpoint* endpoint_;
  const WaitDuties* duties_;
  HeadCarrier* carrier_ = nullptr;
  std::vector<size_t> sources_;   // of the carrier, whose head of this step has not come
  std::vector<HostHead> taken_;   // the last head of each source
  uint64_t host_balance_ = 0;     // the sum over the ranks of this host
  std::vector<int64_t> encoded_;  // with a carrier: the last agreement
  bool carried_ = false;          // this step's agreement goes by the carrier
  // From the last to look at to the first: the rank after this one. So no head is the first for
  // all ranks, and a rank that has arrived is taken out where nothing must move.
  std::vector<int> awaited_;
  std::optional<Deadline> deadline_;
  Spins spins_;
  std::optional<Waiter> waiter_;
  const Agreement* agreement_ = nullptr;
  std::atomic<uint64_t> number_;
  uint64_t balance_ = 0;      // the sum over the heads that have arrived
  uint64_t written_[2] = {};  // by parity: the identity of the agreement that is on the board
  bool refused_ = false;
  bool behind_ = false;  // the last step was refused before all of its heads had arrived
};

template <typename OnArrival>
Status Step::AwaitAll(OnArrival&& on_arrival) {
  return AwaitHeads(true, on_arrival);
}

template <typename OnArrival>
Status Step::AwaitHeads(bool agrees, OnArrival&& on_arrival) {
  while (!awaited_.empty()) {
    int rank = 0;
    const Status came = AwaitNext(&rank);
    if (!came.ok()) return MissingOne(came);
    COLLOPS_RETURN_IF_ERROR(Compare(rank, &agrees));
    COLLOPS_RETURN_IF_ERROR(on_arrival(rank));
    // Of many ranks most have arrived by now: they cost a look each, and no wait.
    COLLOPS_RETURN_IF_ERROR(CompareArrived(&agrees, on_arrival));
  }
  return Judge(agrees);
}

template <typename OnArrival>
Status Step::ReadArrived(OnArrival&& on_arrival) {
  bool agrees = true;
  COLLOPS_RETURN_IF_ERROR(CompareArrived(&agrees, on_arrival));
  return agrees && !awaited_.empty() ? Ok() : Judge(agrees);
}

template <typename OnArrival>
Status Step::CompareArrived(bool* agrees, OnArrival&& on_arrival) {
  for (size_t i = awaited_.size(); i-- > 0;) {
    const int rank = awaited_[i];
    if (!endpoint_->HasBegun(rank, number())) continue;
    if (i + 1 == awaited_.size()) {
      awaited_.pop_back();
    } else {
      awaited_.erase(awaited_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    COLLOPS_RETURN_IF_ERROR(Compare(rank, agrees));
    COLLOPS_RETURN_IF_ERROR(on_arrival(rank));
  }
  return Ok();
}

}  // namespace collops::control

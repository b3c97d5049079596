#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/agreement.h"
#include "comm/control/endpoint.h"
#include "comm/control/waiter.h"
#include "core/status.h"

namespace collops::control {

// The steps of one rank, one after the other: each is begun, announced to all by a head, heard from
// all, compared, and ended. A backend writes its own first signal between Begin() and Publish(), so
// that the head rides in it, and judges nothing itself. Owned by Control, one thread at a time.
// Waits until the time-out in Begin() (after a refusal), HearAll(), HearRest(), Until(), End().
class Step {
 public:
  // `steps_before`: the number that the first step follows, equal on every rank.
  Step(Endpoint* endpoint, const WaitDuties* duties, uint64_t steps_before)
      : endpoint_(endpoint), duties_(duties), number_(steps_before) {
    unheard_.reserve(static_cast<size_t>(endpoint->size()));
    endpoint->Finish(steps_before);
  }

  // Begins the next step. After a refused one it waits until all ranks have come to that: they keep
  // places for two heads. The agreement stays until the end of the step.
  Status Begin(const Agreement& agreement, double timeout_s);
  // Tells the others of it. What was written before is visible to whoever hears it.
  void Publish();
  // Takes part in the next step with a refusal, without waiting for the others.
  Status Refuse(const char* name, const Status& reason, double timeout_s);

  // Waits until all ranks have been heard, and compares them. `on_heard(rank)` takes what a backend
  // has sent along; its error ends the step. After an error with refused() nothing has moved, and
  // the next step may follow.
  template <typename OnHeard>
  Status HearAll(OnHeard&& on_heard);
  Status HearAll() {
    return HearAll([](int) { return Ok(); });
  }
  // The same of those who have come, without waiting: for a call whose body runs meanwhile.
  template <typename OnHeard>
  Status HearArrived(OnHeard&& on_heard);
  bool Heard(int rank) const {
    return std::find(unheard_.begin(), unheard_.end(), rank) == unheard_.end();
  }

  bool refused() const { return refused_; }
  // Of a call, which may be several steps: its waits have one deadline. `deadline`: that of the
  // first contact that the call has made; none: the first wait begins it.
  void BeginCall(const std::optional<Deadline>& deadline) {
    refused_ = false;
    deadline_ = deadline;
  }
  // Read by any thread.
  uint64_t number() const { return number_.load(std::memory_order_relaxed); }
  Endpoint& endpoint() const { return *endpoint_; }

  // THE wait loop; `ready` says that it is over.
  template <typename Ready>
  Status Until(Ready&& ready) {
    return waiter_->Until(ready);
  }
  Waiter& waiter() { return *waiter_; }
  // Looks for failures while this rank computes; never waits.
  Status LookAround() const { return waiter_->LookAround(); }

  // Whether every rank is done with the step before this one.
  bool PreviousFinished() const;
  // This rank has read all it needs; an error if the group has failed meanwhile. The second also
  // waits until every rank has: for who lets its peers read in place.
  Status End();
  Status EndTogether();

 private:
  void Enter(const char* name, double timeout_s);
  Status CatchUp(double timeout_s);
  // Waits for the next rank that has not been heard, in the order in which they come, so that a
  // refusal is heard at once.
  Status AwaitNext(int* rank) {
    auto next = unheard_.end();
    RETURN_IF_ERROR(Until([&] {
      next = std::find_if(unheard_.begin(), unheard_.end(),
                          [&](int r) { return endpoint_->HasBegun(r, number()); });
      return next != unheard_.end();
    }));
    *rank = *next;
    unheard_.erase(next);
    return Ok();
  }
  // Compares a head that has come; false in `agrees` for one that differs.
  Status Hear(int rank, bool* agrees);
  Status Judge(bool agrees);
  Status HearRest();
  Status Disagreement() const;
  // Of a wait for the others that has ended with `status`: what those who have come disagree about,
  // if anything. A rank that stays away hides no disagreement of the others.
  Status MissingOne(const Status& status) const;
  std::vector<std::vector<int64_t>> HeardAgreements() const;
  std::string WhoIsMissing() const;

  Endpoint* endpoint_;
  const WaitDuties* duties_;
  std::vector<int> unheard_;
  std::optional<Deadline> deadline_;
  std::optional<Waiter> waiter_;
  const Agreement* agreement_ = nullptr;
  std::atomic<uint64_t> number_;
  uint64_t balance_ = 0;      // the sum of those heard
  uint64_t written_[2] = {};  // by parity, the identity of the agreement that is on the board
  bool refused_ = false;
  bool behind_ = false;  // the last step was refused before all its heads were heard
};

template <typename OnHeard>
Status Step::HearAll(OnHeard&& on_heard) {
  bool agrees = true;
  while (!unheard_.empty()) {
    int rank = 0;
    const Status came = AwaitNext(&rank);
    if (!came.ok()) return MissingOne(came);
    RETURN_IF_ERROR(Hear(rank, &agrees));
    RETURN_IF_ERROR(on_heard(rank));
  }
  return Judge(agrees);
}

template <typename OnHeard>
Status Step::HearArrived(OnHeard&& on_heard) {
  bool agrees = true;
  for (size_t i = 0; i < unheard_.size();) {
    const int rank = unheard_[i];
    if (!endpoint_->HasBegun(rank, number())) {
      ++i;
      continue;
    }
    unheard_.erase(unheard_.begin() + static_cast<std::ptrdiff_t>(i));
    RETURN_IF_ERROR(Hear(rank, &agrees));
    RETURN_IF_ERROR(on_heard(rank));
  }
  return agrees && !unheard_.empty() ? Ok() : Judge(agrees);
}

}  // namespace collops::control

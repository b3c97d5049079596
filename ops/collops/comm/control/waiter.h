#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "collops/comm/control/endpoint.h"
#include "collops/core/cpu_relax.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/core/trace/spans.h"

namespace collops::control {

// What a wait has found in the pair lane: no messages, messages under way, messages under way whose
// arrival rings no doorbell, or messages that have just moved.
enum class MessageProgress { kNothing, kUnderWay, kNoDoorbell, kMoved };
// The longest sleep while messages may come without a ring.
constexpr int kNoDoorbellSleepMs = 1;

// For a sleep on descriptors while messages are under way: one more that ends it, or -1, and how
// long it may last; 0: messages may move already.
struct WakeCondition {
  int descriptor = -1;
  int most_ms = 0;
};

// Functions that a wait calls after it has spun, and before it sleeps. Each may be empty.
struct WaitDuties {
  std::function<void()> drain;  // reads window mails, so that the mailbox does not fill up
  std::function<MessageProgress()> progress_messages;  // moves messages that are under way
  std::function<WakeCondition()>
      wake_condition;  // set with `progress_messages`: prepares one sleep while they are
  std::function<double()> overdue;  // 0, or the limit in seconds that the call has exceeded
  std::function<Status()> parent;   // Ok, or the error that ended the parent of this subgroup

  MessageProgress ProgressMessages() const {
    return progress_messages ? progress_messages() : MessageProgress::kNothing;
  }
  double Overdue() const { return overdue ? overdue() : 0; }
};

// How many times a wait looks before it yields the core. If a yield shows that others need the core
// (it comes back late), later waits yield almost at once: the awaited rank may be waiting for this
// core. Each yield that comes back at once doubles the looks again.
class Spins {
 public:
  static constexpr int kLeast = 1;
  static constexpr int kMost = 64;

  int looks() const { return looks_; }
  void NoteYield(bool others_ran) { looks_ = others_ran ? kLeast : std::min(2 * looks_, kMost); }

 private:
  int looks_ = kMost;
};

// Yields for the first millisecond of a wait; after that the rank counts as idle.
class Backoff {
 public:
  explicit Backoff(Spins* spins) : spins_(spins) {}
  bool Yield();

 private:
  using Clock = std::chrono::steady_clock;

  Spins* spins_;
  Clock::time_point begun_;
  Clock::time_point looked_;
};

// How one rank waits in one step: it spins briefly, yields the core, and then sleeps; before it
// sleeps it looks for failures, lost peers, Ctrl-C and the deadline.
class Waiter {
 public:
  // `name` is the call's, for messages. `deadline` is that of the whole call; its first wait that
  // takes a while sets it.
  Waiter(Endpoint* endpoint, const WaitDuties* duties, double timeout_s, uint64_t step,
         const char* name, std::optional<Deadline>* deadline, Spins* spins)
      : endpoint_(endpoint),
        duties_(duties),
        timeout_s_(timeout_s),
        step_(step),
        name_(name),
        deadline_(deadline),
        spins_(spins) {}

  // For a call that computes between its waits: each wait gets the whole time-out.
  void RestartDeadline() { deadline_->reset(); }

  // Calls `ready` until it returns true, and not again after that.
  template <typename Ready>
  Status Until(Ready&& ready) {
    return Until(ready, [this](auto&& awake, bool both, int most_ms) {
      endpoint_->SleepUntilRung(kGroupLane, awake, both, most_ms);
    });
  }
  // With another sleep than on the doorbell: `sleep(awake, both, most_ms)`, as
  // Endpoint::SleepUntilRung().
  template <typename Ready, typename Sleep>
  Status Until(Ready&& ready, Sleep&& sleep) {
    const recording::WaitSpan wait("wait for data");
    for (int i = 0; i < spins_->looks(); ++i) {
      if (ready()) return Ok();
      CpuRelax();
    }
    Backoff patience(spins_);
    while (!ready()) {
      // `ready` is asked once more: data that arrived before the failure is still used on all
      // ranks.
      if (endpoint_->GroupFailed(step_)) return ready() ? Ok() : endpoint_->GroupFailure(step_);
      const MessageProgress progress = duties_->ProgressMessages();
      if (patience.Yield()) continue;
      const Status looked = Look();
      if (!looked.ok()) return endpoint_->GroupFailed(step_) && ready() ? Ok() : looked;
      if (progress == MessageProgress::kMoved) continue;
      bool is_ready = false;
      const auto awake = [&] {
        if ((is_ready = ready()) || endpoint_->GroupFailed(step_)) return true;
        return progress != MessageProgress::kNothing &&
               duties_->ProgressMessages() == MessageProgress::kMoved;
      };
      recording::WaitSpan::BeforeSleep();
      // If messages are under way, a ring of the pair lane wakes this wait, too.
      const bool both = progress != MessageProgress::kNothing;
      sleep(awake, both,
            progress == MessageProgress::kNoDoorbell ? kNoDoorbellSleepMs : kMostSleepMs);
      if (is_ready) return Ok();
    }
    return Ok();
  }

  // The checks of a wait except its deadline, once and without waiting.
  Status LookAround() const;

 private:
  // The slow checks, before every sleep.
  Status Look();
  // Says once, after some seconds of waiting, which ranks are awaited.
  void TellWaiting();

  Endpoint* endpoint_;
  const WaitDuties* duties_;
  double timeout_s_;
  uint64_t step_;
  const char* name_;
  std::optional<Deadline>* deadline_;
  Spins* spins_;  // outlives the steps
  std::optional<Deadline> silence_;
  bool waiting_printed_ = false;
};

}  // namespace collops::control

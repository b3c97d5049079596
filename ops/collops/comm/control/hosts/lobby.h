#pragma once

#include <poll.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/control/first_contact/job_listener.h"
#include "collops/comm/rank_set.h"

namespace collops::control {

// What the ranks of a group on several hosts say to each other in a roll call.
struct RollMessage {
  enum class Kind : uint64_t {
    kComes = 1,     // to the one that is to lead: this rank is there
    kLooks = 2,     // to one that has not come, by the one that leads
    kHere = 3,      // an answer: it takes part in the same roll call
    kDecision = 4,  // an answer: who goes on
    kRefused = 5,   // an answer: the roll call ends for you, and why
    kArrived = 6,   // the sender has met the new group
  };
  Kind kind = Kind::kHere;
  std::string group;  // its name
  int rank = 0;       // of the sender
  // Sets of ranks, a bit each: whom the sender excludes, or who goes on; and whom it has given up.
  std::string set;
  std::string given_up;
  uint64_t number = 0;  // how many milliseconds it waits, or the token of the new group
  Status reason;

  Frame frame() const;
  // False if it is no such frame.
  static bool Read(const Frame& frame, RollMessage* message);
};

// Where a rank is reached by the others of its group, and of the groups to which that is shrunk,
// for as long as this object lives: then nobody reaches it any more. Whoever comes before he is
// asked for waits here. Nothing here waits; one thread uses it.
class Lobby {
 public:
  // One who has come for a roll call, of whichever group.
  struct Caller {
    Connection connection;
    std::optional<RollMessage> said = std::nullopt;
    std::optional<Deadline> waits_until = std::nullopt;
    bool greeted = false;
    bool answered = false;  // by the decision
  };

  explicit Lobby(std::unique_ptr<JobListener> listener) : listener_(std::move(listener)) {}

  // Those who have come for this, and were not taken yet.
  std::vector<Proven> Take(const std::string& purpose) {
    while (listener_->Next(&waiting_)) continue;
    DropEnded();
    const auto other = [&](const Proven& one) { return one.claim.purpose != purpose; };
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), other);
    std::vector<Proven> taken(std::make_move_iterator(first),
                              std::make_move_iterator(waiting_.end()));
    waiting_.erase(first, waiting_.end());
    return taken;
  }

  // Whoever comes under this name is not let in any more: he sees that this rank is not there.
  void EndMeeting(const std::string& name) {
    Append(name, &ended_);
    DropEnded();
  }

  JobListener& listener() const { return *listener_; }
  std::list<Caller>& callers() { return callers_; }
  // Who goes on of a group, for good, as this rank knows; null: it does not, or not any more.
  const RollMessage* DecisionOf(const std::string& group) const {
    const auto known =
        std::find_if(decisions_.begin(), decisions_.end(),
                     [&](const RollMessage& decision) { return decision.group == group; });
    return known == decisions_.end() ? nullptr : &*known;
  }
  // The first one of a group counts.
  void Keep(const RollMessage& decision) {
    if (DecisionOf(decision.group) == nullptr) Append(decision, &decisions_);
  }
  void AddPolled(std::vector<pollfd>* polled) const {
    listener_->AddPolled(polled);
    for (const Caller& caller : callers_) polled->push_back(caller.connection.Polled());
  }

 private:
  // More than the attempts of a shrink or grow in which another rank may still be. A rank that was
  // stopped for longer, and asks, finds out by its time-out.
  static constexpr size_t kMostKept = 64;
  template <typename Kept>
  static void Append(const Kept& one, std::deque<Kept>* all) {
    if (all->size() == kMostKept) all->pop_front();
    all->push_back(one);
  }
  void DropEnded() {
    const auto is_ended = [&](const Proven& one) {
      return std::find(ended_.begin(), ended_.end(), one.claim.domain) != ended_.end();
    };
    waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), is_ended), waiting_.end());
  }

  std::unique_ptr<JobListener> listener_;
  std::vector<Proven> waiting_;
  std::deque<std::string> ended_;
  std::list<Caller> callers_;
  std::deque<RollMessage> decisions_;
};

}  // namespace collops::control

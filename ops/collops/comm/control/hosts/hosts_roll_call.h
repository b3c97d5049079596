#pragma once

#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/handshake.h"
#include "collops/comm/control/hosts/lobby.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/rank_set.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// How the living ranks of a group on several hosts that has ended agree who goes on. No memory is
// shared and any host may be gone, so they ask at each other's listeners: one accepts as long as
// its process lives, also while that is stopped, and refuses from then on. The lowest rank that is
// left leads: the others come to it, it looks for those that do not come, and decides who goes on.
// A rank keeps the first decision that it hears, and tells it to whoever asks, so that a new group
// in which all members have met is the only one with any of them. If they do not all meet, those
// that know the decision call the roll of its members anew: under the name of the new group, where
// a member that has met comes too, once it finds that the others do not answer. Nothing here waits,
// except Sleep(); one thread uses it.
class HostsRollCall {
 public:
  struct Spec {
    std::string domain;  // of the ranks' claims
    std::string group;   // its name: equal on its ranks, and no other group's of the domain
    int rank = 0;
    RankSet excluded;
    double timeout_s = 0;
    // What is known of a rank by other means; null: nothing. kCutOff is a hint only.
    std::function<Ending(int rank)> ending = nullptr;
    // How long it waits for the list of a rank that is excluded and lives.
    double excluded_s = 1.0;
  };
  // `introduction`: the group's; must outlive this object. Its lobby is there.
  HostsRollCall(const Introduction* introduction, Spec spec);
  ~HostsRollCall();
  HostsRollCall(const HostsRollCall&) = delete;
  HostsRollCall& operator=(const HostsRollCall&) = delete;

  // One round. An error ends the roll call for this rank.
  Status Step();
  bool decided() const { return decided_; }
  // Of a decision.
  const RankSet& members() const { return members_; }
  uint64_t token() const { return token_; }

  // While the members meet: one round; whether not all of them can come any more.
  bool MeetsInVain();
  // This rank has met them.
  void Arrive();

  // Until something has arrived, for a short time at most.
  void Sleep() const;

  // Of the connections.
  static constexpr const char* kPurpose = "roll call";
  // How long it waits, once the caller's time-out has passed, for ranks that take part.
  static constexpr double kGraceS = 5.0;
  // How long another host may take to confirm a connection; and one that is thought to be cut off.
  static constexpr double kReachS = 3.5;
  static constexpr double kReachCutOffS = 1.5;

 private:
  // At the listener of a rank.
  struct Attempt {
    std::optional<HandshakeClient> client;
    Deadline reach_by = Deadline::After(0);
    Deadline pause = Deadline::After(0);
    bool reached = false;
    bool proven = false;
    bool told = false;
    bool answered = false;  // it takes part
  };

  int size() const { return static_cast<int>(introduction_.rows.size()); }
  const Row& RowOf(int rank) const { return introduction_.rows[static_cast<size_t>(rank)]; }
  RankSet SetOf(const std::string& bits) const;
  std::string BitsOf(const RankSet& set) const;
  RollMessage MessageOf(RollMessage::Kind kind) const;
  Status LeftOut() const;
  bool IsOfGroup(const Lobby::Caller& caller) const;
  bool HasComeFrom(const Lobby::Caller& caller) const;
  // Whether the rank is not waited for.
  bool IsOut(int rank) const {
    return spec_.excluded.Contains(rank) || gone_.count(rank) > 0 || given_up_.count(rank) > 0;
  }

  // Takes what others say at this rank's listener, and answers.
  void Serve();
  void Hear(Lobby::Caller* caller);
  void Answer(Lobby::Caller* caller);
  // The rank takes part.
  void MarkAnswered(int rank);

  Status Follow(int leader);
  bool OthersGaveUp(int rank);
  Status Lead();
  Status AskExcluded(bool* done);
  Status CompareLists(int* other);
  Status Disagreed(int other);
  Status TellAll(const Status& reason);
  void Decide(const RankSet& members);
  // `from`: who has told it.
  Status Adopt(int from, const RollMessage& decision);

  Status Contact(int rank, RollMessage::Kind as);
  Status Refused(int rank, Attempt* attempt);
  Status Take(int rank, Attempt* attempt, const RollMessage& message);
  static void Drop(Attempt* attempt);
  void LoseHostOf(int rank);

  const Introduction& introduction_;
  const std::shared_ptr<Lobby> lobby_;
  const Spec spec_;
  const Deadline deadline_;
  bool leads_ = false;
  // How long it then waits at least.
  std::optional<Deadline> led_until_;
  std::optional<Deadline> asks_until_;  // one that is excluded
  std::map<int, Attempt> attempts_;     // by rank
  std::map<int, Deadline> patience_;    // with those that are to lead
  std::map<int, RankSet> lists_;        // of the ranks that were heard: whom they exclude
  std::set<int> gone_;
  std::set<int> given_up_;
  std::set<int> arrived_;
  bool decided_ = false;
  bool in_vain_ = false;
  RankSet members_;
  uint64_t token_ = 0;
  int leader_ = -1;  // the lowest member
};

}  // namespace collops::control

#include "collops/comm/control/hosts/hosts_roll_call.h"

#include <algorithm>
#include <utility>

#include "collops/comm/control/first_contact/messages.h"
#include "collops/core/process/token.h"

namespace collops::control {
namespace {

constexpr double kMs = 1e-3;
constexpr double kMostWaitMs = 1e12;

}  // namespace

HostsRollCall::HostsRollCall(const Introduction* introduction, Spec spec)
    : introduction_(*introduction),
      lobby_(introduction->lobby.lock()),
      spec_(std::move(spec)),
      deadline_(Deadline::After(spec_.timeout_s)),
      members_(RankSet::None(size())) {}

// Those who wait for this rank in this roll call see that it is over here.
HostsRollCall::~HostsRollCall() {
  lobby_->callers().remove_if([&](const Lobby::Caller& caller) { return IsOfGroup(caller); });
}

RankSet HostsRollCall::SetOf(const std::string& bits) const {
  RankSet set = RankSet::None(size());
  for (int r = 0; r < size() && static_cast<size_t>(r / 8) < bits.size(); ++r) {
    if ((bits[static_cast<size_t>(r / 8)] >> r % 8 & 1) != 0) set.Add(r);
  }
  return set;
}

std::string HostsRollCall::BitsOf(const RankSet& set) const {
  std::string bits(static_cast<size_t>(size() + 7) / 8, '\0');
  for (int r = 0; r < size(); ++r) {
    char& byte = bits[static_cast<size_t>(r / 8)];
    if (set.Contains(r)) byte = static_cast<char>(byte | 1 << r % 8);
  }
  return bits;
}

RollMessage HostsRollCall::MessageOf(RollMessage::Kind kind) const {
  RollMessage message;
  message.kind = kind;
  message.group = spec_.group;
  message.rank = spec_.rank;
  message.set = BitsOf(spec_.excluded);
  RankSet given_up = RankSet::None(size());
  for (const int r : given_up_) given_up.Add(r);
  message.given_up = BitsOf(given_up);
  const double remaining_ms = deadline_.RemainingS() / kMs;
  message.number = static_cast<uint64_t>(std::clamp(remaining_ms, 0.0, kMostWaitMs));
  return message;
}

Status HostsRollCall::LeftOut() const {
  return Error(ERROR_TIMEOUT, "the other ranks go on without rank ", spec_.rank,
               ", which they had not heard when their time-out passed");
}

bool HostsRollCall::IsOfGroup(const Lobby::Caller& caller) const {
  return caller.said && caller.said->group == spec_.group && caller.said->rank < size();
}

bool HostsRollCall::HasComeFrom(const Lobby::Caller& caller) const {
  return IsOfGroup(caller) && caller.said->kind == RollMessage::Kind::kComes &&
         caller.connection.alive();
}

void HostsRollCall::Serve() {
  std::list<Lobby::Caller>& callers = lobby_->callers();
  for (Proven& one : lobby_->Take(kPurpose)) callers.push_back({std::move(one.connection)});
  for (Lobby::Caller& caller : callers) {
    Hear(&caller);
    Answer(&caller);
  }
  callers.remove_if([](const Lobby::Caller& caller) { return !caller.connection.alive(); });
}

void HostsRollCall::Hear(Lobby::Caller* caller) {
  Frame frame;
  for (int i = 0; i < kMostHeard && caller->connection.Receive(&frame); ++i) {
    RollMessage message;
    const bool sound = RollMessage::Read(frame, &message);
    if (sound && caller->said && message.kind == RollMessage::Kind::kArrived) {
      if (IsOfGroup(*caller)) arrived_.insert(caller->said->rank);
      continue;
    }
    const bool begins =
        message.kind == RollMessage::Kind::kComes || message.kind == RollMessage::Kind::kLooks;
    if (!sound || caller->said || !begins) return caller->connection.Break("sent an invalid frame");
    caller->said = std::move(message);
  }
}

void HostsRollCall::Answer(Lobby::Caller* caller) {
  if (!caller->said || caller->answered || !caller->connection.alive()) return;
  const RollMessage* const known = lobby_->DecisionOf(caller->said->group);
  if (known != nullptr) {
    caller->answered = caller->connection.Send(known->frame());
    return;
  }
  if (caller->greeted || !IsOfGroup(*caller)) return;
  caller->greeted = caller->connection.Send(MessageOf(RollMessage::Kind::kHere).frame());
  // It is there, whatever was thought of it.
  const int rank = caller->said->rank;
  caller->waits_until = Deadline::After(static_cast<double>(caller->said->number) * kMs);
  lists_[rank] = SetOf(caller->said->set);
  gone_.erase(rank);
  given_up_.erase(rank);
  if (caller->said->kind == RollMessage::Kind::kLooks) MarkAnswered(rank);
}

void HostsRollCall::MarkAnswered(int rank) {
  attempts_[rank].answered = true;
  // The one that leads may itself wait that long.
  const double more_s = std::max(deadline_.RemainingS(), 0.0) + 2 * kGraceS;
  patience_.insert_or_assign(rank, Deadline::After(more_s));
}

Status HostsRollCall::Step() {
  if (decided_) return Ok();
  const RollMessage* const known = lobby_->DecisionOf(spec_.group);
  if (known != nullptr) return Adopt(-1, *known);
  Serve();
  if (spec_.ending) {
    for (int r = 0; r < size() && !decided_; ++r) {
      if (r == spec_.rank || spec_.ending(r) != kProcessEnded) continue;
      // What it has said counts, too.
      const auto attempt = attempts_.find(r);
      if (attempt != attempts_.end() && attempt->second.told) {
        COLLOPS_RETURN_IF_ERROR(Contact(r, RollMessage::Kind::kComes));
      }
      gone_.insert(r);
    }
  }
  // One after the other, as long as they turn out to be gone.
  while (!decided_) {
    int leader = 0;
    while (leader != spec_.rank && IsOut(leader)) ++leader;
    if (leader == spec_.rank) return Lead();
    COLLOPS_RETURN_IF_ERROR(Follow(leader));
    if (!IsOut(leader)) return Ok();
  }
  return Ok();
}

Status HostsRollCall::Follow(int leader) {
  for (auto other = attempts_.begin(); other != attempts_.end();) {
    other = other->first == leader ? std::next(other) : attempts_.erase(other);
  }
  leads_ = false;
  led_until_.reset();
  COLLOPS_RETURN_IF_ERROR(Contact(leader, RollMessage::Kind::kComes));
  if (decided_ || IsOut(leader)) return Ok();
  // The others may still wait for the one that this rank no longer waits for.
  const bool is_next = !gone_.empty() || !given_up_.empty();
  const double wait_s = std::max(deadline_.RemainingS(), is_next ? kGraceS : 0.0);
  const Deadline& until = patience_.try_emplace(leader, Deadline::After(wait_s)).first->second;
  const bool is_given_up = !attempts_[leader].answered && OthersGaveUp(leader);
  if (!until.Passed() && !is_given_up) return Ok();
  given_up_.insert(leader);
  attempts_.erase(leader);
  patience_.erase(leader);
  return Ok();
}

bool HostsRollCall::OthersGaveUp(int rank) {
  const std::list<Lobby::Caller>& callers = lobby_->callers();
  return std::any_of(callers.begin(), callers.end(), [&](const Lobby::Caller& caller) {
    return IsOfGroup(caller) && caller.connection.alive() &&
           SetOf(caller.said->given_up).Contains(rank);
  });
}

Status HostsRollCall::Lead() {
  // It takes over, and the others may not have found out yet that they are to come to it.
  const auto has_lower = [&](const std::set<int>& ranks) {
    return !ranks.empty() && *ranks.begin() < spec_.rank;
  };
  const bool takes_over = has_lower(gone_) || has_lower(given_up_);
  if (!std::exchange(leads_, true) && takes_over) led_until_ = Deadline::After(kGraceS);
  bool late = deadline_.Passed();
  RankSet present = RankSet::None(size());
  present.Add(spec_.rank);
  for (Lobby::Caller& caller : lobby_->callers()) {
    if (!HasComeFrom(caller)) continue;
    late = late || (caller.waits_until && caller.waits_until->Passed());
    if (!spec_.excluded.Contains(caller.said->rank)) present.Add(caller.said->rank);
  }
  int other = -1;
  COLLOPS_RETURN_IF_ERROR(CompareLists(&other));
  RankSet missing = RankSet::None(size());
  bool heard = false;
  for (int r = 0; r < size(); ++r) {
    if (present.Contains(r) || IsOut(r)) continue;
    COLLOPS_RETURN_IF_ERROR(Contact(r, RollMessage::Kind::kLooks));
    if (decided_) return Ok();
    // One that excludes other ranks may come to another one.
    if (IsOut(r) || (lists_.count(r) > 0 && lists_[r] != spec_.excluded)) continue;
    missing.Add(r);
    heard = heard || attempts_[r].answered;
  }
  if (missing.count() > 0) {
    if (late && heard && !led_until_) led_until_ = Deadline::After(kGraceS);
    if (!late || (led_until_ && !led_until_->Passed())) return Ok();
    for (int r = 0; r < size(); ++r) {
      if (missing.Contains(r)) given_up_.insert(r);
    }
  }
  bool asked = false;
  COLLOPS_RETURN_IF_ERROR(AskExcluded(&asked));
  if (decided_ || !asked) return Ok();
  COLLOPS_RETURN_IF_ERROR(CompareLists(&other));
  if (other >= 0) return Disagreed(other);
  const auto silent = static_cast<int>(given_up_.size());
  if (silent > present.count()) {
    return TellAll(Error(ERROR_TIMEOUT, silent, " ranks of ", size(),
                         " have neither ended nor come, more than the ", present.count(),
                         " that have: the others may go on without these"));
  }
  Decide(present);
  return Ok();
}

// Those that are excluded may exclude this rank, and would go on with the lowest of them, which is
// to hear this rank's list, and to say its own. One that is in no roll call says nothing, and one
// whose list is of none does not go on: the lowest may be any of the others.
Status HostsRollCall::AskExcluded(bool* done) {
  *done = true;
  bool is_lowest = true;
  for (int r = 0; r < size(); ++r) {
    if (!spec_.excluded.Contains(r) || gone_.count(r) > 0) continue;
    if (lists_.count(r) == 0) COLLOPS_RETURN_IF_ERROR(Contact(r, RollMessage::Kind::kLooks));
    if (decided_) return Ok();
    const auto heard = lists_.find(r);
    const bool goes_on = heard != lists_.end() && heard->second.count() > 0;
    if (is_lowest && goes_on) return Ok();
    const bool stays_behind = gone_.count(r) > 0 || (heard != lists_.end() && !goes_on);
    is_lowest = is_lowest && stays_behind;
  }
  if (is_lowest) return Ok();
  if (!asks_until_) asks_until_ = Deadline::After(spec_.excluded_s);
  *done = asks_until_->Passed();
  return Ok();
}

// Sets *other to a rank whose list differs. A list of none, of a rank that is excluded, is no other
// list: it knows nothing of it.
Status HostsRollCall::CompareLists(int* other) {
  for (const auto& [rank, list] : lists_) {
    const bool excludes_me = list.Contains(spec_.rank) && spec_.excluded.count() == 0;
    COLLOPS_CHECK_ARG(!excludes_me, ERROR_ABORTED, RowOf(rank).Who(), " has excluded rank ",
                      spec_.rank, ": the other ranks go on without it");
    const bool knows_nothing = spec_.excluded.Contains(rank) && list.count() == 0;
    if (*other < 0 && !knows_nothing && list != spec_.excluded) *other = rank;
  }
  for (Lobby::Caller& caller : lobby_->callers()) {
    if (!HasComeFrom(caller) || caller.answered) continue;
    const int rank = caller.said->rank;
    if (!spec_.excluded.Contains(rank) || lists_[rank].count() > 0) continue;
    RollMessage refusal = MessageOf(RollMessage::Kind::kRefused);
    refusal.reason = Error(ERROR_ABORTED, RowOf(spec_.rank).Who(), " has excluded rank ", rank,
                           ": the other ranks go on without it");
    caller.answered = caller.connection.Send(refusal.frame());
  }
  return Ok();
}

Status HostsRollCall::Disagreed(int other) {
  return TellAll(Error(ERROR_RANK_MISMATCH, "exclude is ", ListOf(spec_.excluded, size()), " on ",
                       RowOf(spec_.rank).Who(), " and ", ListOf(lists_[other], size()), " on ",
                       RowOf(other).Who(),
                       ": the ranks that stay pass the same list; call shrink again"));
}

// Returns `reason`.
Status HostsRollCall::TellAll(const Status& reason) {
  RollMessage refusal = MessageOf(RollMessage::Kind::kRefused);
  refusal.reason = reason;
  for (Lobby::Caller& caller : lobby_->callers()) {
    if (HasComeFrom(caller)) static_cast<void>(caller.connection.Send(refusal.frame()));
  }
  return reason;
}

void HostsRollCall::Decide(const RankSet& members) {
  RollMessage decision = MessageOf(RollMessage::Kind::kDecision);
  decision.set = BitsOf(members);
  decision.number = DrawToken();
  static_cast<void>(Adopt(spec_.rank, decision));
}

Status HostsRollCall::Adopt(int from, const RollMessage& decision) {
  lobby_->Keep(decision);
  members_ = SetOf(decision.set);
  token_ = decision.number;
  leader_ = 0;
  while (leader_ < size() && !members_.Contains(leader_)) ++leader_;
  // The lowest member has made it; if it does not tell it itself, it is lost or given up.
  in_vain_ = from != leader_;
  for (Lobby::Caller& caller : lobby_->callers()) Answer(&caller);
  decided_ = members_.Contains(spec_.rank);
  return decided_ ? Ok() : LeftOut();
}

bool HostsRollCall::MeetsInVain() {
  Serve();
  if (leader_ != spec_.rank && !in_vain_) {
    Attempt& attempt = attempts_[leader_];
    Frame frame;
    RollMessage message;
    const auto heard = [&] {
      return attempt.client && attempt.client->connection().Receive(&frame);
    };
    for (int i = 0; i < kMostHeard && heard(); ++i) {
      const bool sound = RollMessage::Read(frame, &message);
      if (sound && message.kind == RollMessage::Kind::kArrived) arrived_.insert(leader_);
    }
    const bool alive = attempt.client && attempt.client->connection().alive();
    in_vain_ = !alive && arrived_.count(leader_) == 0;
  } else if (!in_vain_) {
    RankSet there = RankSet::None(size());
    there.Add(spec_.rank);
    for (const int r : arrived_) there.Add(r);
    for (const Lobby::Caller& caller : lobby_->callers()) {
      if (HasComeFrom(caller)) there.Add(caller.said->rank);
    }
    for (int r = 0; r < size(); ++r)
      in_vain_ = in_vain_ || (members_.Contains(r) && !there.Contains(r));
  }
  return in_vain_;
}

void HostsRollCall::Arrive() {
  const Frame arrived = MessageOf(RollMessage::Kind::kArrived).frame();
  if (leader_ == spec_.rank) {
    for (Lobby::Caller& caller : lobby_->callers()) {
      if (HasComeFrom(caller)) static_cast<void>(caller.connection.Send(arrived));
    }
    return;
  }
  Attempt& attempt = attempts_[leader_];
  if (attempt.client) static_cast<void>(attempt.client->connection().Send(arrived));
}

void HostsRollCall::Sleep() const {
  std::vector<pollfd> polled;
  lobby_->AddPolled(&polled);
  for (const auto& [rank, attempt] : attempts_) {
    if (attempt.client) polled.push_back(attempt.client->connection().Polled());
  }
  AwaitReady(std::move(polled));
}

}  // namespace collops::control

// A new communicator of the ranks that are left of one that has ended.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/hosts/hosts_roll_call.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/control/roll_call.h"
#include "collops/comm/registry.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/process/token.h"
#include "collops/core/trace/spans.h"

namespace collops {
namespace {

constexpr const char* kName = "shrink";

// How long the ranks that have come to the roll call wait for each other from then on, once the
// caller's time-out has passed: for one that is stopped meanwhile.
constexpr double kGraceS = control::HostsRollCall::kGraceS;
// How long an engine may say that a rank has ended before the system does.
constexpr double kSeenS = 1.0;
// An attempt ends early because a rank ends or is late, so there are about as many as ranks.
constexpr int kSpareAttempts = 16;

Status ReadExcluded(const std::vector<int>& exclude, int rank, int size, RankSet* excluded) {
  *excluded = RankSet::None(size);
  for (size_t i = 0; i < exclude.size(); ++i) {
    const int r = exclude[i];
    COLLOPS_CHECK_ARG(r >= 0 && r < size, ERROR_INVALID_PARAM, kName, ": exclude[", i,
                      "] must be from 0 to ", size - 1, ", got ", r);
    COLLOPS_CHECK_ARG(r != rank, ERROR_INVALID_PARAM, kName, ": exclude[", i, "] is ", r,
                      ", this rank: the ranks that stay call it; one that goes calls close()");
    COLLOPS_CHECK_ARG(!excluded->Contains(r), ERROR_INVALID_PARAM, kName, ": exclude[", i,
                      "] names rank ", r, " a second time");
    excluded->Add(r);
  }
  return Ok();
}

// Errors that say what happened to other ranks in a meeting, and not what this rank lacks.
bool IsOfOthers(const Status& status) {
  return status.code() == ERROR_ABORTED || status.code() == ERROR_PEER_LOST ||
         status.code() == ERROR_TIMEOUT;
}

Status CheckStays(const control::Control& control) {
  const int rank = control.spec().rank;
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kName, ": rank ", rank, " was interrupted");
  COLLOPS_CHECK_ARG(!control.left(), ERROR_ABORTED, kName, ": rank ", rank,
                    " has closed its communicator meanwhile");
  return Ok();
}

Status CheckAttempts(uint64_t attempts, int size) {
  const auto most = static_cast<uint64_t>(size + kSpareAttempts);
  COLLOPS_CHECK_ARG(attempts <= most, ERROR_TIMEOUT, kName, ": in ", most,
                    " attempts the ranks that are left did not meet");
  return Ok();
}

// Where `*spec`'s rank is one of the old ranks that go on.
void NumberAnew(const std::vector<int>& old_ranks, control::GroupSpec* spec) {
  const auto own = std::find(old_ranks.begin(), old_ranks.end(), spec->rank);
  spec->rank = static_cast<int>(own - old_ranks.begin());
  spec->rank_size = static_cast<int>(old_ranks.size());
  spec->old_ranks = old_ranks;
}

struct WordsOfRank {
  const control::Endpoint* endpoint;
  control::RollWords& operator()(int rank) const { return endpoint->board().member(rank).roll; }
};
struct HasLeft {
  const control::Endpoint* endpoint;
  bool operator()(int rank) const { return endpoint->HasLeft(rank); }
};
using RollCall = control::RollCall<MachineMemory, control::kRollSetWords, WordsOfRank, HasLeft>;

// One rank's way through the roll call of the group of `control`, and the meetings that it needs.
class Shrinking {
 public:
  Shrinking(control::Control* control, const control::GroupSpec& spec, const RankSet& excluded,
            double timeout_s)
      : control_(*control),
        endpoint_(control->endpoint()),
        spec_(spec),
        roll_(&endpoint_.board().group().roll, WordsOfRank{&endpoint_}, HasLeft{&endpoint_},
              spec.rank, excluded, spec.rank_size),
        deadline_(Deadline::After(timeout_s)) {}

  // The new communicator; null if this returns an error.
  std::shared_ptr<Communicator> TakeMade() { return std::move(made_); }

  Status Run() {
    bool thrown = false;
    Status status = control::Control::Catch(kName, [this] { return Go(); }, &thrown);
    // The others are not to wait for it.
    if (thrown) static_cast<void>(GiveUp());
    // Not by what this library writes.
    if (status.ok() && made_ == nullptr) {
      status = Error(ERROR_RANK_MISMATCH, kName, ": by the shared words all ranks that are left ",
                     "have met, and rank ", spec_.rank, " has not");
    }
    if (!status.ok()) made_.reset();
    return status;
  }

 private:
  Status Go() {
    std::optional<Deadline> limit;  // of the phase
    uint64_t phase = 0;
    bool begun = false;
    while (true) {
      const Status wanted = CheckWanted();
      if (!wanted.ok() && GiveUp()) return wanted;
      if (roll_.seen().word() != phase) limit = Deadline::After(RemainingS());
      phase = roll_.seen().word();
      bool told = false;
      const auto turn = roll_.Look((limit ? *limit : deadline_).Passed(), DrawToken(), &told);
      if (told) endpoint_.RingAll();
      if (!begun) first_epoch_ = roll_.seen().epoch;
      begun = true;
      switch (turn) {
        case RollCall::Turn::kWait:
          endpoint_.SleepUntilRung(control::kGroupLane, [this] { return roll_.HasNews(); });
          break;
        case RollCall::Turn::kMeet: {
          made_.reset();
          const Status met = Meet();
          if (met.ok()) {
            roll_.Arrive();
            endpoint_.RingAll();
            break;
          }
          if (!IsOfOthers(met) && !TurnsOutVain() && GiveUp())
            return Error(met.code(), kName, ": ", met.message());
          if (roll_.Restart()) endpoint_.RingAll();
          break;
        }
        case RollCall::Turn::kGoOn:
          return Ok();
        case RollCall::Turn::kLeftOut:
          return LeftOut();
        case RollCall::Turn::kDisagreed:
          return Disagreed();
      }
    }
  }

  Status CheckWanted() const {
    COLLOPS_RETURN_IF_ERROR(CheckStays(control_));
    const uint64_t before = std::min(first_epoch_, roll_.seen().epoch);
    return CheckAttempts(roll_.seen().epoch - before, spec_.rank_size);
  }
  bool GiveUp() {
    const bool left = roll_.Leave();
    if (left) endpoint_.RingAll();
    return left;
  }
  // Whether the meeting has failed because a member has ended, which is seen a little later.
  bool TurnsOutVain() {
    const Deadline seen = Deadline::After(kSeenS);
    while (!roll_.MeetsInVain() && !seen.Passed()) {
      endpoint_.SleepUntilRung(control::kGroupLane, [this] { return roll_.MeetsInVain(); });
    }
    return roll_.MeetsInVain();
  }
  double RemainingS() const { return std::max(deadline_.RemainingS(), kGraceS); }

  Status Meet() {
    control::GroupSpec spec = spec_;
    const RankSet& members = roll_.members();
    std::vector<int> old_ranks;
    for (int r = 0; r < spec_.rank_size; ++r) {
      if (members.Contains(r)) old_ranks.push_back(r);
    }
    NumberAnew(old_ranks, &spec);
    spec.meeting = Concat("shrink ", roll_.token(), ".", roll_.seen().epoch);
    spec.timeout_s = RemainingS();
    // Not called any more once the ranks have met; this object lives until then.
    spec.watch = [this]() -> Status {
      COLLOPS_CHECK_ARG(!roll_.MeetsInVain() && !control_.left(), ERROR_ABORTED,
                        "not all ranks that are left can come: they begin again");
      return Ok();
    };
    COLLOPS_RETURN_IF_ERROR(Registry::Instance().MakeApart(spec, &made_));
    return made_->Connect();
  }

  Status LeftOut() {
    const control::RollState seen = roll_.seen();
    const bool open = seen.phase == control::RollPhase::kOpen;
    GiveUp();
    for (int r = 0; r < spec_.rank_size; ++r) {
      const bool counts = open || r == seen.winner;
      if (r == spec_.rank || !counts || !roll_.ExcludedBy(r).Contains(spec_.rank)) continue;
      return Error(ERROR_ABORTED, kName, ": ", endpoint_.Who(r), " has excluded rank ", spec_.rank,
                   ": the other ranks go on without it");
    }
    return Error(ERROR_TIMEOUT, kName, ": the other ranks go on without rank ", spec_.rank,
                 ", which had not called it when their time-out passed");
  }

  Status Disagreed() {
    const int one = roll_.seen().winner;
    const int other = static_cast<int>(roll_.token() % static_cast<uint64_t>(spec_.rank_size));
    const int size = spec_.rank_size;
    const std::string other_list = ListOf(roll_.ExcludedBy(other), size);  // before it leaves
    GiveUp();
    return Error(ERROR_RANK_MISMATCH, kName, ": exclude is ", ListOf(roll_.members(), size), " on ",
                 endpoint_.Who(one), " and ", other_list, " on ", endpoint_.Who(other),
                 ": the ranks that stay pass the same list; call shrink again");
  }

  control::Control& control_;
  control::Endpoint& endpoint_;
  const control::GroupSpec spec_;
  RollCall roll_;
  const Deadline deadline_;
  uint64_t first_epoch_ = 0;  // a call that was told no has left others behind
  std::shared_ptr<Communicator> made_;
};

// As Shrinking, of a group on several hosts: a roll call, and the meeting of those that it has
// found. If they do not meet, the next roll call is among them.
class ShrinkingOnHosts {
 public:
  ShrinkingOnHosts(control::Control* control, const control::GroupSpec& spec,
                   const RankSet& excluded, double timeout_s)
      : control_(*control),
        endpoint_(control->endpoint()),
        spec_(spec),
        excluded_(excluded),
        deadline_(Deadline::After(timeout_s)),
        introduction_(control->endpoint().group().introduction),
        lobby_(control->lobby()),
        name_(control->spec().meeting) {
    for (int r = 0; r < spec.rank_size; ++r) members_.push_back(r);
  }

  // The new communicator; null if this returns an error.
  std::shared_ptr<Communicator> TakeMade() { return std::move(made_); }

  Status Run() {
    for (uint64_t attempt = 0; made_ == nullptr; ++attempt) {
      COLLOPS_RETURN_IF_ERROR(CheckAttempts(attempt, spec_.rank_size));
      COLLOPS_RETURN_IF_ERROR(Attempt());
    }
    return Ok();
  }

 private:
  int rank() const {
    const auto own = std::find(members_.begin(), members_.end(), spec_.rank);
    return static_cast<int>(own - members_.begin());
  }

  Status Attempt() {
    control::HostsRollCall roll(introduction_.get(), RollSpec());
    while (!roll.decided()) {
      COLLOPS_RETURN_IF_ERROR(CheckStays(control_));
      const Status step = roll.Step();
      COLLOPS_CHECK_ARG(step.ok(), step.code(), kName, ": ", step.message());
      if (roll.decided()) break;
      COLLOPS_CHECK_ARG(!at_first_ || !endpoint_.OthersGoOn(), ERROR_TIMEOUT, kName,
                        ": the other ranks go on without rank ", spec_.rank,
                        ", which had not called it when their time-out passed");
      roll.Sleep();
    }
    GoOnAmong(roll);
    const Status met = control::Control::Catch(kName, [&] { return Meet(&roll); });
    if (met.ok()) {
      roll.Arrive();
      return Ok();
    }
    if (made_ != nullptr) ControlOf(*made_).Close(met.message(), control::kHasNotMet);
    made_.reset();
    // A host that has just reached this one is not to wait for it.
    lobby_->EndMeeting(control::ProofNameOf(SpecOfNew()));
    if (IsOfOthers(met) || roll.MeetsInVain()) return Ok();
    return Error(met.code(), kName, ": ", met.message());
  }

  control::HostsRollCall::Spec RollSpec() const {
    control::HostsRollCall::Spec spec;
    spec.domain = control::ProofNameOf(spec_);
    spec.group = name_;
    spec.rank = rank();
    spec.excluded = at_first_ ? excluded_ : RankSet::None(static_cast<int>(members_.size()));
    spec.timeout_s = at_first_ ? deadline_.timeout_s() : RemainingS();
    if (at_first_) spec.ending = [this](int r) { return endpoint_.EndingOf(r); };
    return spec;
  }
  double RemainingS() const { return std::max(deadline_.RemainingS(), kGraceS); }

  // From here on the group is that of the roll call's members.
  void GoOnAmong(const control::HostsRollCall& roll) {
    auto next = std::make_shared<control::Introduction>();
    std::vector<int> members;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (!roll.members().Contains(static_cast<int>(r))) continue;
      next->rows.push_back(introduction_->rows[r]);
      next->rows.back().rank = static_cast<int>(members.size());
      members.push_back(members_[r]);
    }
    next->secret = introduction_->secret;
    next->address = introduction_->address;
    next->port = introduction_->port;
    next->lobby = lobby_;
    before_ = std::exchange(introduction_, next);  // the roll call still reads it
    members_ = members;
    name_ = Concat("shrink ", roll.token());
    at_first_ = false;
  }

  control::GroupSpec SpecOfNew() const {
    control::GroupSpec spec = spec_;
    NumberAnew(members_, &spec);
    spec.meeting = name_;
    spec.introduction = introduction_;
    return spec;
  }

  Status Meet(control::HostsRollCall* roll) {
    COLLOPS_CHECK_ARG(!roll->MeetsInVain(), ERROR_PEER_LOST, "not all members are left");
    control::GroupSpec spec = SpecOfNew();
    const std::vector<control::Row>& rows = introduction_->rows;
    spec.one_host = std::all_of(rows.begin(), rows.end(), [&](const control::Row& row) {
      return row.host == rows.front().host;
    });
    spec.timeout_s = RemainingS();
    // Not called any more once the ranks have met; this object and the roll call live until then.
    spec.watch = [this, roll]() -> Status {
      COLLOPS_CHECK_ARG(!roll->MeetsInVain() && !control_.left(), ERROR_ABORTED,
                        "not all ranks that are left can come: they begin again");
      return Ok();
    };
    COLLOPS_RETURN_IF_ERROR(Registry::Instance().MakeApart(spec, &made_));
    return made_->Connect();
  }

  control::Control& control_;
  control::Endpoint& endpoint_;
  const control::GroupSpec spec_;
  const RankSet excluded_;
  const Deadline deadline_;
  std::shared_ptr<control::Introduction> introduction_;
  std::shared_ptr<control::Introduction> before_;
  const std::shared_ptr<control::Lobby> lobby_;
  std::string name_;
  std::vector<int> members_;  // as spec_ numbers them
  bool at_first_ = true;
  std::shared_ptr<Communicator> made_;
};

}  // namespace

Status BackendCommunicator::CheckShrinks() const {
  return Error(
      ERROR_UNSUPPORTED, kName, ": backend ", spec().backend,
      " cannot make a group smaller yet: end this communicator, and make a new one in each "
      "process that is left, with its new rank and rank_size");
}

// As the calls of all ranks that are running, this one's started calls end with the group.
Status BackendCommunicator::EndForShrink(const RankSet& excluded, double timeout_s) {
  COLLOPS_CHECK_ARG(!control_->left(), ERROR_INVALID_PARAM, kName,
                    ": this communicator was closed: make a new one");
  COLLOPS_CHECK_ARG(connected_.load(std::memory_order_acquire), ERROR_INVALID_PARAM, kName,
                    ": the ranks of this communicator have not met, so none of them knows who is "
                    "left: make a new one");
  COLLOPS_RETURN_IF_ERROR(CheckShrinks());
  COLLOPS_RETURN_IF_ERROR(Registry::Instance().CheckCurrent(*this));
  const std::string list =
      excluded.count() == 0 ? "" : Concat("exclude=", ListOf(excluded, size()));
  const Status ended = Error(ERROR_ABORTED, "rank ", rank(), " called shrink(", list, ")");
  const bool starts = queue_.load(std::memory_order_acquire) != nullptr;
  const Status alone = control_->Alone(kName, [&]() -> Status {
    if (!control_->failed()) AwaitCalls(timeout_s, excluded);
    // The last call is complete here, and may still be running on other ranks.
    if (!control_->failed()) {
      static_cast<void>(control_->Fail(ended, control_->step_number() + 1));
    }
    return Ok();
  });
  // The thread of the started calls may be in one.
  if (!alone.ok() && !starts) return alone;
  if (!alone.ok() && !control_->failed()) static_cast<void>(control_->FailUnfinished(ended));
  EndStarted();
  return Ok();
}

Status Communicator::Shrink(const std::vector<int>& exclude, double timeout_s,
                            std::shared_ptr<Communicator>* shrunk) {
  BackendCommunicator& group = backend();
  if (group.control_->Inherited()) return group.control_->CheckUsable(kName);
  RankSet excluded;
  COLLOPS_RETURN_IF_ERROR(ReadExcluded(exclude, rank(), size(), &excluded));
  std::optional<recording::CallSpan> span;
  if (recording::On()) span.emplace(group.lane(), kName);
  const double limit_s = timeout_s > 0 ? timeout_s : this->timeout_s();
  COLLOPS_RETURN_IF_ERROR(group.EndForShrink(excluded, limit_s));
  std::shared_ptr<Communicator> made;
  const Status status = group.control_->Alone(kName, [&] {
    const auto run = [&](auto&& shrinking) {
      const Status ran = shrinking.Run();
      made = shrinking.TakeMade();
      return ran;
    };
    return control::Control::Catch(kName, [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(group.EndCalls(Deadline::After(limit_s)));
      const control::GroupSpec spec = group.SpecOfPart();
      control::Control* const control = group.control_.get();
      return control->endpoint().group().introduction == nullptr
                 ? run(Shrinking(control, spec, excluded, limit_s))
                 : run(ShrinkingOnHosts(control, spec, excluded, limit_s));
    });
  });
  COLLOPS_RETURN_IF_ERROR(status);
  made->set_timeout_s(this->timeout_s());
  made->set_compares_shapes(compares_shapes());
  const std::string reason = "the ranks that are left have a new communicator";
  group.control_->Close(reason, control::kGoesOn);
  group.OnClose();
  return Registry::Instance().Enter(std::move(made), kName, shrunk);
}

const std::vector<int>& Communicator::old_ranks() const {
  return backend().spec().old_ranks;
}

}  // namespace collops

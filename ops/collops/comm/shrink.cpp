// A new communicator of the ranks that are left of one that has ended.

#include <algorithm>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/roll_call.h"
#include "collops/comm/registry.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/trace/spans.h"

namespace collops {
namespace {

constexpr const char* kName = "shrink";

// How long the ranks that have come to the roll call wait for each other from then on, once the
// caller's time-out has passed: for one that is stopped meanwhile.
constexpr double kGraceS = 5.0;
// How long an engine may say that a rank has ended before the system does.
constexpr double kSeenS = 1.0;
// An epoch ends early because a rank ends or is late, so there are about as many as ranks.
constexpr uint64_t kSpareEpochs = 16;

std::string ListOf(const RankSet& ranks, int size) {
  std::string list;
  for (int r = 0; r < size; ++r) {
    if (ranks.Contains(r)) list += Concat(list.empty() ? "" : ", ", r);
  }
  return Concat("[", list, "]");
}

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
    const Status status = Go();
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
      const auto turn = roll_.Look((limit ? *limit : deadline_).Passed(), Draw(), &told);
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
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kName, ": rank ", spec_.rank,
                      " was interrupted");
    COLLOPS_CHECK_ARG(!control_.left(), ERROR_ABORTED, kName, ": rank ", spec_.rank,
                      " has closed its communicator meanwhile");
    const auto most = static_cast<uint64_t>(spec_.rank_size) + kSpareEpochs;
    COLLOPS_CHECK_ARG(roll_.seen().epoch <= first_epoch_ + most, ERROR_TIMEOUT, kName, ": in ",
                      most, " attempts the ranks that are left did not meet");
    return Ok();
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
  uint64_t Draw() { return uint64_t{device_()} << 32 | device_(); }

  Status Meet() {
    control::GroupSpec spec = spec_;
    const RankSet& members = roll_.members();
    spec.old_ranks.clear();
    for (int r = 0; r < spec_.rank_size; ++r) {
      if (members.Contains(r)) spec.old_ranks.push_back(r);
    }
    const auto own = std::find(spec.old_ranks.begin(), spec.old_ranks.end(), spec_.rank);
    spec.rank = static_cast<int>(own - spec.old_ranks.begin());
    spec.rank_size = static_cast<int>(spec.old_ranks.size());
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
  std::random_device device_;
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
  if (!alone.ok() && !control_->failed()) control_->EndAll(ended);
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
    return control::Control::Catch(kName, [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(group.EndCalls(Deadline::After(limit_s)));
      Shrinking shrinking(group.control_.get(), group.SpecOfPart(), excluded, limit_s);
      const Status ran = shrinking.Run();
      made = shrinking.TakeMade();
      return ran;
    });
  });
  COLLOPS_RETURN_IF_ERROR(status);
  made->set_timeout_s(this->timeout_s());
  made->set_compares_shapes(compares_shapes());
  const std::string reason = "the ranks that are left have a new communicator";
  group.control_->Close(reason);
  group.OnClose();
  const Status entered = Registry::Instance().Enter(made, kName);
  if (!entered.ok()) {
    made->Close(entered.message());
    return entered;
  }
  *shrunk = std::move(made);
  return Ok();
}

const std::vector<int>& Communicator::old_ranks() const {
  return backend().spec().old_ranks;
}

}  // namespace collops

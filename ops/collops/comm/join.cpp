// How a new process becomes a rank of a group that grows; grow.cpp has the members' part.

#include <optional>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/entrance.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/registry.h"
#include "collops/core/process/interrupt.h"

namespace collops {
namespace {

using control::Outcome;

constexpr const char* kJoin = "init";

// A new process's way into a group.
class Joining {
 public:
  explicit Joining(const control::GroupSpec& spec)
      : spec_(spec), deadline_(Deadline::After(spec.timeout_s)) {}

  std::shared_ptr<Communicator> TakeMade() { return std::move(made_); }

  Status Run() {
    std::string name;
    COLLOPS_RETURN_IF_ERROR(control::FindEntrance(spec_, &name, &job_));
    guest_.emplace(name);
    while (true) {
      COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "it was interrupted");
      if (deadline_.Passed()) return TimedOut();
      control::Invitation invitation;
      bool invited = false;
      COLLOPS_RETURN_IF_ERROR(guest_->Look(&invitation, &invited));
      if (invited) {
        const Status met = Meet(invitation);
        if (met.ok()) return Ok();
        made_.reset();
        if (!control::IsAboutOthers(met.code())) return met;
        continue;
      }
      patience_.Tell([this] {
        return Concat("collops: init(join=\"", spec_.comm_domain, "\"): waiting for its group to ",
                      guest_->connected() ? "be complete" : "call comm.grow()", " (",
                      DescribeJob(job_), ", backend ", spec_.backend, ")");
      });
      if (guest_->connected()) guest_->AwaitNews();
    }
  }

 private:
  Status TimedOut() const {
    const std::string group = Concat("comm_domain \"", spec_.comm_domain, "\" (", DescribeJob(job_),
                                     "), backend ", spec_.backend, ", ");
    COLLOPS_CHECK_ARG(!guest_->connected(), ERROR_TIMEOUT, group,
                      "called comm.grow(), but was not complete within ", deadline_.timeout_s(),
                      " s: its other new processes or ranks did not come");
    return Error(ERROR_TIMEOUT, "no group of ", group, "called comm.grow() within ",
                 deadline_.timeout_s(),
                 " s. Does it run, in the same job and network namespace, with this comm_domain?");
  }

  Status Meet(const control::Invitation& invitation) {
    control::GroupSpec spec = spec_;
    spec.rank = invitation.rank;
    spec.rank_size = invitation.rank_size;
    spec.tuning = invitation.tuning;
    spec.meeting = invitation.meeting();
    spec.timeout_s = control::MeetingS(deadline_);
    spec.one_host = true;
    spec.watch = [this]() -> Status {
      COLLOPS_CHECK_ARG(!guest_->HasNews(), ERROR_ABORTED, "the group begins again");
      return Ok();
    };
    COLLOPS_RETURN_IF_ERROR(Registry::Instance().MakeApart(spec, &made_));
    COLLOPS_RETURN_IF_ERROR(made_->Connect());
    guest_->TellMet(invitation);
    const Deadline limit = Deadline::After(control::MeetingS(deadline_));
    control::GroupState& state = ControlOf(*made_).endpoint().board().group();
    while (state.outcome.load() == static_cast<uint32_t>(Outcome::kOpen)) {
      const bool in_vain = guest_->HasNews() || Interrupted() || limit.Passed();
      if (in_vain) static_cast<void>(state.Settle(Outcome::kDropped));
      if (!in_vain) guest_->AwaitNews();
    }
    const bool stays = state.Settle(Outcome::kDropped) == Outcome::kStays;
    COLLOPS_CHECK_ARG(stays, ERROR_ABORTED, "the group begins again");
    return Ok();
  }

  const control::GroupSpec spec_;
  const Deadline deadline_;
  JobIdentity job_;
  std::optional<control::Entrant> guest_;
  control::Patience patience_;
  std::shared_ptr<Communicator> made_;
};

}  // namespace

Status Communicator::Join(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* joined) {
  COLLOPS_RETURN_IF_ERROR(Registry::Instance().CheckJoins(spec));
  std::shared_ptr<Communicator> made;
  const Status status = control::Control::Catch(kJoin, [&] {
    Joining joining{control::GroupSpec(spec)};
    const Status ran = joining.Run();
    made = joining.TakeMade();
    return ran;
  });
  if (!status.ok()) return Error(status.code(), spec.voice.begin, status.message());
  made->set_timeout_s(spec.timeout_s);
  const Status entered = Registry::Instance().Enter(made, kJoin);
  if (!entered.ok()) {
    made->Close(entered.message());
    return entered;
  }
  NoteRankSize(made->size());
  *joined = std::move(made);
  return Ok();
}

}  // namespace collops

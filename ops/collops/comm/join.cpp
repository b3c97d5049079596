// How a new process becomes a rank of a group that grows; grow.cpp has the members' part.

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/entrance.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/registry.h"
#include "collops/core/env.h"
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
    const bool one_host = spec_.backend == "shm" || spec_.comm_mode == COMM_MULTI_THREAD;
    if (one_host) COLLOPS_RETURN_IF_ERROR(CheckNoMeetAt(spec_.backend, spec_.meet_at));
    std::string name;
    COLLOPS_RETURN_IF_ERROR(control::FindEntrance(spec_, &name, &job_));
    COLLOPS_RETURN_IF_ERROR(FindHosts(name));
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
        // Ranks that have met it there may look for it, and are not to find it alive.
        if (invitation.on_hosts) COLLOPS_RETURN_IF_ERROR(FindHosts(name));
        continue;
      }
      waiting_.Tell([this] {
        return Concat("collops: init(join=\"", spec_.comm_domain, "\"): waiting for its group to ",
                      guest_->connected() ? "be complete" : "call comm.grow()", " (",
                      DescribeJob(job_), ", backend ", spec_.backend, ")");
      });
      if (guest_->connected()) guest_->AwaitNews();
    }
  }

 private:
  // A group of a backend that runs on several hosts may be on this one alone.
  Status FindHosts(const std::string& name) {
    Env env;
    COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
    port_ = env.port;
    std::vector<std::string> addresses;
    const bool agreed = !spec_.job_id.empty();
    if (spec_.backend == "ucx" && spec_.comm_mode != COMM_MULTI_THREAD && !agreed) {
      COLLOPS_RETURN_IF_ERROR(FindPlacesToJoin(&addresses));
    } else if (!spec_.meet_at.empty()) {
      JobPlace place;
      COLLOPS_RETURN_IF_ERROR(ReadJobPlace(spec_.meet_at, 1, &place));
      addresses = {place.address};
      port_ = place.port;
    }
    secret_ = {job_.id, env.job_key};
    std::vector<control::RendezvousSpec> places;
    for (const std::string& address : addresses) {
      places.push_back(control::FindEntranceOfHosts(spec_, secret_, 1, address, port_));
    }
    guest_.emplace(name, places);
    return Ok();
  }

  Status TimedOut() const {
    const std::string group = Concat("comm_domain \"", spec_.comm_domain, "\" (", DescribeJob(job_),
                                     "), backend ", spec_.backend, ", ");
    COLLOPS_CHECK_ARG(!guest_->connected(), ERROR_TIMEOUT, group,
                      "called comm.grow(), but was not complete within ", deadline_.timeout_s(),
                      " s: its other new processes or ranks did not come");
    const std::string reached = guest_->Failure();
    return Error(
        ERROR_TIMEOUT, "no group of ", group, "called comm.grow() within ", deadline_.timeout_s(),
        " s. Does it run, in the same job and network namespace, with this comm_domain? "
        "comm.grow() logs the call and the variables of a new process",
        reached.empty() ? "" : Concat(". Where a group on several hosts may be: ", reached));
  }

  Status Meet(const control::Invitation& invitation) {
    control::GroupSpec spec = spec_;
    spec.rank = invitation.rank;
    spec.rank_size = invitation.rank_size;
    spec.tuning = invitation.tuning;
    spec.meeting = invitation.meeting();
    spec.timeout_s = control::MeetingS(deadline_);
    spec.one_host = !invitation.on_hosts;
    spec.meet_at.clear();
    std::shared_ptr<control::Lobby> lobby;
    if (invitation.on_hosts) {
      spec.introduction = Introduce(invitation, &lobby);
      COLLOPS_CHECK_ARG(spec.introduction != nullptr, ERROR_RANK_MISMATCH,
                        "its group is on several hosts, but invites by a socket of this one");
    }
    spec.watch = [this]() -> Status {
      COLLOPS_CHECK_ARG(!guest_->HasNews(), ERROR_ABORTED, "the group begins again");
      return Ok();
    };
    COLLOPS_RETURN_IF_ERROR(Registry::Instance().MakeApart(spec, &made_));
    COLLOPS_RETURN_IF_ERROR(made_->Connect());
    guest_->TellMet(invitation);
    bool stays = false;
    COLLOPS_RETURN_IF_ERROR(AwaitOutcome(invitation, &stays));
    COLLOPS_CHECK_ARG(stays, ERROR_ABORTED, "the group begins again");
    return Ok();
  }

  Status AwaitOutcome(const control::Invitation& invitation, bool* stays) {
    control::GroupState& state = ControlOf(*made_).endpoint().board().group();
    const auto is_open = [&state] {
      return state.outcome.load() == static_cast<uint32_t>(Outcome::kOpen);
    };
    const Deadline limit = Deadline::After(control::MeetingS(deadline_));
    bool released = false;
    bool in_vain = false;
    while (!released && !in_vain && is_open()) {
      COLLOPS_RETURN_IF_ERROR(guest_->LookForRelease(invitation, &released, &in_vain));
      in_vain = in_vain || Interrupted() || limit.Passed();
      if (!released && !in_vain && is_open()) guest_->AwaitNews();
    }
    if (invitation.on_hosts && !released) {
      // The ranks of this host may know more than this process; those of others do not read its
      // word.
      const Deadline heard = Deadline::After(control::kHearS);
      while (is_open() && !heard.Passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      *stays = state.outcome.load() == static_cast<uint32_t>(Outcome::kStays);
      return Ok();
    }
    const Outcome wanted = released ? Outcome::kStays : Outcome::kDropped;
    *stays = state.Settle(wanted) == Outcome::kStays || (invitation.on_hosts && released);
    return Ok();
  }

  // Of a group on several hosts.
  std::shared_ptr<control::Introduction> Introduce(const control::Invitation& invitation,
                                                   std::shared_ptr<control::Lobby>* lobby) {
    std::unique_ptr<control::JobListener> listener = guest_->TakeListener();
    if (listener == nullptr) return nullptr;
    auto made = std::make_shared<control::Introduction>();
    made->rows = invitation.rows;
    made->secret = secret_;
    made->address = invitation.rows[static_cast<size_t>(invitation.rank)].address;
    made->port = port_;
    made->lobby = *lobby = std::make_shared<control::Lobby>(std::move(listener));
    return made;
  }

  const control::GroupSpec spec_;
  const Deadline deadline_;
  JobIdentity job_;
  control::JobSecret secret_;
  int port_ = 0;  // of the job
  std::optional<control::Entrant> guest_;
  control::WaitingLine waiting_;
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
  return Registry::Instance().Enter(std::move(made), kJoin, joined);
}

}  // namespace collops

// A communicator with more ranks: the members' part; join.cpp has that of a new process. Rank 0
// waits at the entrance until enough processes are there. Then all meet as a group of their own,
// apart. Its shared memory has one word that says whether it stays, so members and new processes go
// on together, or not at all, whichever of them end meanwhile; until then the old group is as it
// was.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call_scope.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/first_contact/entrance.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/registry.h"
#include "collops/core/env.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/process/token.h"

namespace collops {
namespace {

using control::Outcome;

constexpr const char* kGrow = "grow";

control::GroupState& StateOf(const Communicator& made) {
  return ControlOf(made).endpoint().board().group();
}

struct Wish {
  int64_t count = 0;
  double timeout_s = 0;
};

// What a rank shares with the others: how it stands with it, and of rank 0, where they meet.
struct Report {
  int32_t code = NO_ERROR;
  int32_t reserved = 0;
  uint64_t token = 0;
  char reason[control::kReasonBytes] = {};

  void Set(const Status& status) {
    code = status.code();
    const size_t length = status.message().copy(reason, sizeof(reason) - 1);
    reason[length] = '\0';
  }
  std::string Reason() const { return std::string(reason, strnlen(reason, sizeof(reason))); }
};

// A new process's row, as rank 0 shares it.
struct PlaceOfNew {
  char host[control::Row::kMostHostBytes] = {};
  char address[control::Row::kMostAddressBytes] = {};
  int32_t pid = 0;
  int32_t port = 0;

  void Set(const control::Row& row) {
    row.host.copy(host, sizeof(host));
    row.address.copy(address, sizeof(address));
    pid = row.pid;
    port = row.port;
  }
  control::Row RowOf(int rank) const {
    return {rank, pid, std::string(host, strnlen(host, sizeof(host))),
            std::string(address, strnlen(address, sizeof(address))), port};
  }
};

// One member's way through Grow().
class Growing {
 public:
  // `part`: a group of some of the members, as Split() and Shrink() make it.
  Growing(control::Control* control, const control::GroupSpec& part, int count)
      : control_(*control),
        spec_(part),
        size_(part.rank_size),
        count_(count),
        hosts_(control->endpoint().group().introduction),
        lobby_(control->lobby()) {}

  // The new communicator, which stays; null if this returns an error.
  std::shared_ptr<Communicator> TakeMade() { return std::move(made_); }

  Status Run(double timeout_s) {
    const Status status = control::Control::Catch(kGrow, [&] { return Go(timeout_s); });
    if (!status.ok()) Drop();
    return status;
  }

 private:
  Status Go(double timeout_s) {
    double least_s = 0;
    COLLOPS_RETURN_IF_ERROR(AgreeOnWish(timeout_s, &least_s));
    deadline_ = Deadline::After(least_s);
    while (true) {
      Report word;
      if (spec_.rank == 0) COLLOPS_RETURN_IF_ERROR(Gather(&word));
      std::vector<Report> reports;
      COLLOPS_RETURN_IF_ERROR(Share(&word, 1, &reports));
      const Report& first = reports[0];
      if (first.code != NO_ERROR) {
        return control_.KeepGroupAfter(
            Error(control::FailureCode(first.code), kGrow, ": ", first.Reason()));
      }
      if (hosts_ != nullptr) COLLOPS_RETURN_IF_ERROR(ShareRows());
      bool goes_on = false;
      COLLOPS_RETURN_IF_ERROR(TryOnce(first.token, &goes_on));
      if (goes_on) return Ok();
    }
  }

  Status AgreeOnWish(double timeout_s, double* least_s) {
    const Wish own{count_, timeout_s};
    std::vector<Wish> wishes(static_cast<size_t>(size_));
    COLLOPS_RETURN_IF_ERROR(
        control_.Share(Agreement("Grow").InPlainWords(kGrow, 1), &own, sizeof(own), wishes.data()));
    *least_s = timeout_s;
    for (int r = 1; r < size_; ++r) {
      const Wish& wish = wishes[static_cast<size_t>(r)];
      if (wish.count != wishes[0].count) {
        return control_.KeepGroupAfter(Error(ERROR_RANK_MISMATCH, kGrow, ": n is ", wishes[0].count,
                                             " on ", control_.endpoint().Who(0), " and ",
                                             wish.count, " on ", control_.endpoint().Who(r)));
      }
    }
    for (const Wish& wish : wishes) {
      if (wish.timeout_s > 0) *least_s = std::min(*least_s, wish.timeout_s);
    }
    return Ok();
  }

  // Rank 0 may be a while at the entrance or in the meeting, and ends both by itself.
  template <typename T>
  Status Share(const T* own, size_t count, std::vector<T>* all) {
    all->resize(count * static_cast<size_t>(size_));
    control_.step().BeginCall(
        Deadline::After(control::MeetingS(deadline_) + 2 * control::kMeetingS));
    return control_.Share(Agreement("Grow").InPlainWords(kGrow, 1), own,
                          static_cast<int64_t>(count * sizeof(T)), all->data());
  }

  // Rank 0 waits until enough processes have come. An error ends the group; one that leaves it as
  // it was is put into the word.
  Status Gather(Report* word) {
    Status looked;
    if (!entrance_) {
      looked = OpenEntrance();
    }
    while (looked.ok()) {
      looked = entrance_->Look();
      COLLOPS_RETURN_IF_ERROR(LookAround());
      const bool late = deadline_.Passed();
      const bool full = entrance_->num_present() >= count_;
      if (full && !(late && tried_)) {
        word->token = DrawToken();
        return Ok();
      }
      if (late && looked.ok()) looked = TimedOut(full);
      waiting_.Tell([this] {
        return Concat("collops: rank 0: grow: ", entrance_->num_present(), " of ", count_,
                      " new processes have come; each calls ", DescribeCall());
      });
      Wait();
    }
    word->Set(looked);
    return Ok();
  }

  Status OpenEntrance() {
    std::string name;
    COLLOPS_RETURN_IF_ERROR(control::FindEntrance(spec_, &name, &job_));
    if (hosts_ == nullptr) {
      entrance_.emplace(name, count_);
      return Ok();
    }
    COLLOPS_CHECK_ARG(
        !hosts_->address.empty(), hosts_->unreachable.code(),
        "this rank was alone, and others cannot reach it: ", hosts_->unreachable.message());
    entrance_.emplace(
        control::FindEntranceOfHosts(spec_, hosts_->secret, 0, hosts_->address, hosts_->port),
        count_);
    return Ok();
  }

  // All ranks hear from rank 0 where the new processes are.
  Status ShareRows() {
    const auto count = static_cast<size_t>(count_);
    std::vector<PlaceOfNew> own(count);
    if (entrance_) {
      const std::vector<control::Row> rows = entrance_->FirstRows();
      // One may have ended just now: then the meeting is in vain.
      for (size_t i = 0; i < std::min(count, rows.size()); ++i) own[i].Set(rows[i]);
    }
    std::vector<PlaceOfNew> all;
    COLLOPS_RETURN_IF_ERROR(Share(own.data(), count, &all));
    const std::vector<PlaceOfNew>& first = spec_.rank == 0 ? own : all;
    next_ = std::make_shared<control::Introduction>();
    next_->rows = hosts_->rows;
    for (int i = 0; i < count_; ++i) {
      next_->rows.push_back(first[static_cast<size_t>(i)].RowOf(size_ + i));
    }
    next_->secret = hosts_->secret;
    next_->address = hosts_->address;
    next_->port = hosts_->port;
    next_->lobby = lobby_;
    return Ok();
  }

  Status TimedOut(bool full) const {
    const int came = std::min(entrance_->num_present(), count_);
    return Error(
        ERROR_TIMEOUT, came, " of ", count_,
        count_ == 1 ? " new process came within " : " new processes came within ",
        deadline_.timeout_s(), " s",
        full ? Concat(", but they did not meet the group: ", in_vain_) : entrance_->Hindrance(),
        "; this group is as it was. A new process calls ", DescribeCall());
  }

  // What a new process calls, and what its environment must have, for messages.
  std::string DescribeCall() const {
    // Its launcher, or a table that has other ranks too, may choose another backend.
    std::string call =
        Concat("collops.init(join=\"", spec_.comm_domain, "\", backend=\"", spec_.backend, "\"");
    if (!spec_.job_id.empty()) call += Concat(", job_id=\"", spec_.job_id, "\"");
    if (spec_.comm_mode == COMM_MULTI_THREAD) return Concat(call, ", comm_mode=1) in this process");
    if (!spec_.job_id.empty()) {
      control::SocketAddress place;
      if (hosts_ == nullptr || !control::ParseNumeric(hosts_->address, hosts_->port, &place)) {
        return Concat(call, ")");
      }
      return Concat(call, ", meet_at=\"", place.Text(), "\")");
    }
    const bool of_table = job_.id.rfind("rank-table/", 0) == 0;
    const std::string with = of_table ? "this job's rank table in RANK_TABLE_FILE"
                                      : Concat("COLLOPS_JOB_ID=", NameForOthers(job_));
    if (hosts_ == nullptr) return Concat(call, ") with ", with);
    return Concat(call, ") with ", with, " and MASTER_ADDR=", hosts_->address,
                  " COLLOPS_PORT=", hosts_->port);
  }

  Status LookAround() const {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kGrow, ": rank ", spec_.rank,
                      " was interrupted");
    control_.Drain();
    static_cast<void>(control_.duties().ProgressMessages());
    return control_.Peek(kGrow);
  }

  void Wait() const {
    std::vector<pollfd> polled;
    entrance_->AddPolled(&polled);
    control::AwaitReady(std::move(polled));
  }

  // All meet once. An error ends the old group. `goes_on`: the new one stays; else the new one is
  // gone, and they try again, unless this returns an error that leaves the old group as it was.
  Status TryOnce(uint64_t token, bool* goes_on) {
    tried_ = true;
    Report own;
    own.Set(Meet(token));
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kGrow, ": rank ", spec_.rank,
                      " was interrupted");
    const bool met = own.code == NO_ERROR;
    std::vector<Report> reports;
    Status shared = Share(&own, 1, &reports);
    const auto failed = std::find_if(reports.begin(), reports.end(),
                                     [](const Report& report) { return report.code != NO_ERROR; });
    const bool all_met = shared.ok() && failed == reports.end();
    if (met && hosts_ == nullptr) {
      // Another rank may know more or less than this one: whoever was first counts.
      const Outcome wanted = all_met ? Outcome::kStays : Outcome::kDropped;
      *goes_on = StateOf(*made_).Settle(wanted) == Outcome::kStays;
    } else if (met) {
      if (all_met) shared = Share(&own, 1, &reports);
      *goes_on = all_met && (shared.ok() || OthersGoOn());
      static_cast<void>(StateOf(*made_).Settle(*goes_on ? Outcome::kStays : Outcome::kDropped));
    }
    if (*goes_on) {
      if (entrance_) entrance_->Release();
      return Ok();
    }
    Drop();
    COLLOPS_RETURN_IF_ERROR(shared);
    // Of all ranks' errors the first that is not about another one.
    for (const Report& report : reports) {
      const ErrorCode code = control::FailureCode(report.code);
      if (report.code == NO_ERROR || control::IsAboutOthers(code)) continue;
      return control_.KeepGroupAfter(
          Error(code, kGrow, ": ", Who(reports, report), ": ", report.Reason()));
    }
    if (failed != reports.end()) {
      in_vain_ = Concat(Who(reports, *failed), ": ", failed->Reason());
    }
    return Ok();
  }

  // Several hosts have no memory in common. All ranks know here that all have met; a rank that
  // cannot be sure that all others know it, too, goes on if any of them has.
  bool OthersGoOn() const {
    const Deadline limit = Deadline::After(control::kHearS);
    while (!control_.endpoint().OthersGoOn() && !limit.Passed() && !Interrupted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return control_.endpoint().OthersGoOn();
  }

  std::string Who(const std::vector<Report>& reports, const Report& report) const {
    return control_.endpoint().Who(static_cast<int>(&report - reports.data()));
  }

  void Drop() {
    made_.reset();
    if (next_ == nullptr) return;
    // A host that has just reached this one is not to wait for it.
    control::GroupSpec in_vain = spec_;
    in_vain.meeting = meeting_;
    if (lobby_ != nullptr) lobby_->EndMeeting(control::ProofNameOf(in_vain));
  }

  Status Meet(uint64_t token) {
    control::Invitation invitation{token, size_, size_ + count_, spec_.tuning, hosts_ != nullptr};
    if (next_ != nullptr) invitation.rows = next_->rows;
    control::GroupSpec spec = spec_;
    spec.rank_size = invitation.rank_size;
    spec.meeting = meeting_ = invitation.meeting();
    spec.introduction = next_;
    spec.one_host = next_ == nullptr;
    // Rank 0 ends it, so that the members hear why.
    spec.timeout_s = control::MeetingS(deadline_) + (spec_.rank == 0 ? 0 : control::kMeetingS);
    const uint64_t next = control_.step_number() + 1;
    // Not called any more once the ranks have met; this object lives until then.
    spec.watch = [this, next] { return LookAtMeeting(next); };
    if (entrance_) entrance_->Invite(invitation);
    COLLOPS_RETURN_IF_ERROR(Registry::Instance().MakeApart(spec, &made_));
    COLLOPS_RETURN_IF_ERROR(made_->Connect());
    if (!entrance_) return Ok();
    const Deadline limit = Deadline::After(control::MeetingS(deadline_));
    while (!entrance_->AllMet()) {
      COLLOPS_RETURN_IF_ERROR(LookAtMeeting(next));
      COLLOPS_RETURN_IF_ERROR(ControlOf(*made_).Peek(kGrow));
      COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "rank 0 was interrupted");
      COLLOPS_CHECK_ARG(!limit.Passed(), ERROR_TIMEOUT, "a new process did not answer");
      if (!entrance_->AllMet()) Wait();
    }
    return Ok();
  }

  // An error if the meeting is in vain: a member has ended, or said in the step after it that it
  // has failed; or a new process has ended.
  Status LookAtMeeting(uint64_t next) {
    COLLOPS_RETURN_IF_ERROR(control_.Peek(kGrow));
    const control::Endpoint& endpoint = control_.endpoint();
    for (int r = 0; r < size_; ++r) {
      if (r == spec_.rank || !endpoint.HasBegun(r, next)) continue;
      Report report;
      std::memcpy(&report, endpoint.board().shared(r, next), sizeof(report));
      COLLOPS_CHECK_ARG(report.code == NO_ERROR, ERROR_ABORTED, endpoint.Who(r), ": ",
                        report.Reason());
    }
    if (!entrance_) return Ok();
    COLLOPS_RETURN_IF_ERROR(entrance_->Look());
    return entrance_->CheckInvited();
  }

  control::Control& control_;
  const control::GroupSpec spec_;
  const int size_;
  const int count_;
  const std::shared_ptr<control::Introduction> hosts_;  // null: the group is on one host
  const std::shared_ptr<control::Lobby> lobby_;
  std::shared_ptr<control::Introduction> next_;  // of the new group
  Deadline deadline_ = Deadline::After(0);
  std::optional<control::Entrance> entrance_;  // of rank 0
  JobIdentity job_;
  control::WaitingLine waiting_;
  std::shared_ptr<Communicator> made_;
  bool tried_ = false;
  std::string meeting_;  // the name of the last meeting
  std::string in_vain_;  // why the last meeting was
};

}  // namespace

Status BackendCommunicator::CheckGrows() const {
  return Error(ERROR_UNSUPPORTED, kGrow, ": backend ", spec().backend,
               " cannot make a group larger yet: make a new communicator in all processes");
}

Status Communicator::Grow(int count, double timeout_s, std::shared_ptr<Communicator>* grown) {
  BackendCommunicator& group = backend();
  std::shared_ptr<Communicator> made;
  CallScope scope(&group, kGrow);
  COLLOPS_RETURN_IF_ERROR(scope.Run([&]() -> Status {
    control::Control& control = *group.control_;
    // The same on all ranks.
    const Status able = group.CheckGrows();
    if (!able.ok()) return control.KeepGroupAfter(able);
    const bool on_hosts = control.endpoint().group().introduction != nullptr;
    const int most = (on_hosts ? control::kMaxGroupRanks : control::kMaxRanks) - size();
    if (count < 1 || count > most) {
      const Status bad =
          Error(ERROR_INVALID_PARAM, kGrow, ": n must be from 1 to ", most, ", got ", count);
      COLLOPS_RETURN_IF_ERROR(control.Refuse(kGrow, bad));
      return bad;
    }
    Growing growing(&control, group.SpecOfPart(), count);
    const Status ran = growing.Run(timeout_s > 0 ? timeout_s : this->timeout_s());
    made = growing.TakeMade();
    return ran;
  }));
  const std::string reason = "the group has grown: it has a new communicator";
  made->set_timeout_s(this->timeout_s());
  made->set_compares_shapes(compares_shapes());
  Leave(reason, true);
  return Registry::Instance().Enter(std::move(made), kGrow, grown);
}

}  // namespace collops

#include "collops/comm/control/control.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <utility>

#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/placement/placement.h"
#include "collops/core/process/interrupt.h"
#include "collops/core/process/per_process.h"
#include "collops/core/trace/spans.h"

namespace collops::control {
namespace {

// The groups of this process that have not met: rank and comm_domain. Ranks whose first calls are
// in different groups wait for each other until the time-out, whose message then names both groups.
struct PendingGroups {
  std::mutex mutex;
  std::multiset<std::pair<int, std::string>> all;
};
PerProcess<PendingGroups> pending_here;

// The groups that this process has declined, likewise.
struct DeclinedGroups {
  std::mutex mutex;
  std::set<std::pair<int, std::string>> all;
};
PerProcess<DeclinedGroups> declined_here;

bool IsDeclinedAgain(const GroupSpec& spec) {
  DeclinedGroups& declined = declined_here.Get();
  const std::lock_guard<std::mutex> lock(declined.mutex);
  return !declined.all.emplace(spec.rank, spec.comm_domain).second;
}

// Why a rank leaves first contact. Rank 0, whom the others ask, says for every other rank who it
// is.
Status Left(int rank, const std::string& reason) {
  return rank == 0 ? Error(ERROR_PEER_LOST, "rank 0 (pid ", getpid(), ") has left: ", reason)
                   : Error(ERROR_PEER_LOST, reason);
}

Status CheckSize(const GroupSpec& spec, Reach reach) {
  const bool hosts = reach == Reach::kHosts && spec.comm_mode != COMM_MULTI_THREAD;
  const int most = hosts ? kMaxGroupRanks : kMaxRanks;
  COLLOPS_CHECK_ARG(spec.rank_size <= most, ERROR_UNSUPPORTED, "backend ", spec.backend,
                    ": at most ", most, " ranks", hosts ? "" : " on a host", ", got ",
                    spec.voice.rank_size, " ", spec.rank_size);
  return Ok();
}

SegmentShape SegmentOf(const GroupSpec& spec, const SegmentShape& of_backend) {
  SegmentShape segment = Board::Shape(spec.rank_size);
  segment.Append(of_backend);
  return segment;
}

// `table`: complete, or null.
Status MakeMeeting(const GroupSpec& spec, const std::shared_ptr<const RankTable>& table,
                   const SegmentShape& segment, Reach reach, std::unique_ptr<Meeting>* meeting) {
  const bool threads = spec.comm_mode == COMM_MULTI_THREAD;
  if (table != nullptr && spec.check_table != nullptr) {
    COLLOPS_RETURN_IF_ERROR(spec.check_table(spec.backend, *table));
  }
  if (table != nullptr && (reach == Reach::kOneHost || threads)) {
    COLLOPS_RETURN_IF_ERROR(CheckOneHost(spec.backend, *table));
  }
  JobPlace place;
  const bool asks = reach == Reach::kHosts && !threads && spec.introduction == nullptr;
  if (!asks) COLLOPS_RETURN_IF_ERROR(CheckNoMeetAt(spec.backend, spec.meet_at));
  if (asks && !spec.job_id.empty()) {
    COLLOPS_RETURN_IF_ERROR(ReadJobPlace(spec.meet_at, spec.rank, &place));
  } else if (asks) {
    COLLOPS_RETURN_IF_ERROR(FindJobPlace(table, spec.rank, &place));
  }
  std::string digest = table == nullptr ? spec.table_digest : table->digest;
  if (!place.address.empty()) {
    digest = place.table_digest;
  } else if (digest.empty() && !threads) {
    COLLOPS_RETURN_IF_ERROR(FindJobDigest(&digest));
  }
  JobIdentity job;
  COLLOPS_RETURN_IF_ERROR(FindMeetingPlace(threads, spec.job_id, digest, &job));
  if (spec.introduction != nullptr) {
    *meeting = std::make_unique<HostsMeeting>(spec, job, segment.bytes);
    return Ok();
  }
  if (place.address.empty()) {
    COLLOPS_RETURN_IF_ERROR(CheckSize(spec, Reach::kOneHost));
    *meeting = Meeting::Create(spec, job, segment);
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(CheckAcrossHosts(job));
  return HostsMeeting::Create(spec, job, place, table, segment.bytes, meeting);
}

}  // namespace

Status Control::Create(const GroupSpec& spec, const SegmentShape& of_backend,
                       std::shared_ptr<Control>* control, Reach reach) {
  COLLOPS_RETURN_IF_ERROR(CheckSize(spec, reach));
  // A group that another one makes has ranks of that, which may have grown beyond its launch.
  const bool is_new = spec.meeting.empty() && spec.top_rank < 0;
  if (spec.comm_mode == COMM_MULTI_PROCESS && spec.job_id.empty() && is_new) {
    COLLOPS_RETURN_IF_ERROR(CheckRankSize(spec.rank_size, spec.voice));
  }
  const SegmentShape segment = SegmentOf(spec, of_backend);
  std::unique_ptr<Meeting> meeting;
  if (spec.table != nullptr && !spec.table->completed) {
    meeting = std::make_unique<AwaitedTable>(
        spec, [segment, reach](const GroupSpec& group, const RankTable& table, auto* made) {
          return MakeMeeting(group, std::make_shared<const RankTable>(table), segment, reach, made);
        });
  } else {
    COLLOPS_RETURN_IF_ERROR(MakeMeeting(spec, spec.table, segment, reach, &meeting));
  }
  *control = std::make_shared<Control>(spec, std::move(meeting));
  return Ok();
}

void Control::Decline(const GroupSpec& spec, const Status& reason) {
  constexpr double kPatienceS = 10;
  if (spec.rank_size == 1 || (spec.table != nullptr && !spec.table->completed)) return;
  std::unique_ptr<Meeting> meeting;
  const Status made = MakeMeeting(spec, spec.table, SegmentOf(spec, 0), Reach::kHosts, &meeting);
  if (!made.ok()) return;
  meeting->Decline(reason, IsDeclinedAgain(spec) ? 0 : std::min(spec.timeout_s, kPatienceS));
}

Control::Control(const GroupSpec& spec, const JobIdentity& job, const SegmentShape& of_backend,
                 uint64_t steps_before)
    : Control(spec, Meeting::Create(spec, job, SegmentOf(spec, of_backend)), steps_before) {}

Control::Control(const GroupSpec& spec, std::unique_ptr<Meeting> meeting, uint64_t steps_before)
    : spec_(spec),
      fork_generation_(ForkGeneration()),
      steps_before_(steps_before),
      meeting_(std::move(meeting)),
      pending_(true) {
  {
    PendingGroups& pending = pending_here.Get();
    const std::lock_guard<std::mutex> lock(pending.mutex);
    pending.all.emplace(spec_.rank, spec_.comm_domain);
  }
  if (!spec.parent.expired()) duties_.parent = [this] { return ParentFailure(); };
  meeting_->Begin();
}

Control::Control(const GroupSpec& spec)
    : spec_(spec), fork_generation_(ForkGeneration()), steps_before_(0) {}

Control::Control(const GroupSpec& spec, Group group) : Control(spec) {
  ConnectTo(std::move(group));
}

Control::~Control() {
  Close("it closed its communicator");
  // In a child of fork() these belong to the parent: destroying them would act for the parent.
  if (Inherited()) {
    (void)meeting_.release();
    (void)connection_.release();
  } else {
    MarkMet();
  }
}

Status Control::SecondThread(const char* name) const {
  return Error(ERROR_INVALID_PARAM, name, ": another thread is in a call of rank ", spec_.rank,
               " of comm_domain \"", spec_.comm_domain, "\"; one thread at a time");
}

Status Control::CheckUsable(const char* name) const {
  const std::string domain =
      spec_.comm_domain.empty() ? "" : Concat("comm_domain \"", spec_.comm_domain, "\"; ");
  COLLOPS_CHECK_ARG(
      !Inherited(), ERROR_INVALID_PARAM, name,
      ": this communicator belongs to the parent process; make a new one after fork()");
  if (!failed()) return Ok();
  const Status failure = Failure();
  // A rank that has left the group cannot shrink it.
  const char* shrinking = left() ? "" : "go on with shrink(), or ";
  return Error(failure.code(), name, ": this communicator has ended (", domain, shrinking,
               "make a new one on all ranks): ", failure.message());
}

Status Control::Failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

bool Control::left() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return left_;
}

Status Control::CheckBoard() const {
  COLLOPS_CHECK_ARG(
      has_board(), ERROR_UNSUPPORTED, "backend ", spec_.backend,
      ": a communicator that was handed in has no host connection: set COLLOPS_CHECK=1, or ",
      "leave hcclComm out");
  return Ok();
}

Status Control::Thrown(const char* name, const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return Error(ERROR_OUT_OF_HOST_MEMORY, name, ": this process cannot allocate more memory");
  }
  return Error(ERROR_RT_FAIL, name, ": ", error.what());
}

Status Control::Connect(const char* name, const Deadline& deadline) {
  const recording::WaitSpan wait("wait for first contact");
  Group group;
  const Status met = Catch(name, [&] { return meeting_->Complete(deadline, &group); });
  Status status = met;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (group.segment.data() != nullptr) ConnectTo(std::move(group));
    // Another thread called Abort() or Close() meanwhile.
    if (failed()) status = failure_;
  }
  if (status.ok()) return status;
  // The message of a rank that did not come says "first contact" itself.
  const bool named = status.message().find(Concat(": ", name, " of ")) != std::string::npos;
  return Fail(
      WithOthersPending(named ? status : Error(status.code(), name, ": ", status.message())),
      kOutsideSteps);
}

void Control::MarkMet() {
  if (!std::exchange(pending_, false)) return;
  PendingGroups& pending = pending_here.Get();
  const std::lock_guard<std::mutex> lock(pending.mutex);
  pending.all.erase(pending.all.find({spec_.rank, spec_.comm_domain}));
}

Status Control::WithOthersPending(const Status& status) const {
  if (status.code() != ERROR_TIMEOUT || !pending_) return status;
  std::set<std::string> names;
  {
    PendingGroups& pending = pending_here.Get();
    const std::lock_guard<std::mutex> lock(pending.mutex);
    for (const auto& [rank, domain] : pending.all) {
      // Ranks that are threads have a process in common.
      const bool other = rank == spec_.rank && domain != spec_.comm_domain;
      if (other) names.insert(Concat("\"", domain, "\""));
    }
  }
  if (names.empty()) return status;
  std::string list;
  for (const std::string& name : names) list += Concat(list.empty() ? "" : ", ", name);
  return Error(status.code(), status.message(), "; this is comm_domain \"", spec_.comm_domain,
               "\", and ", list,
               " of this rank has not met either: ranks that share several make their first calls ",
               "in the same order");
}

void Control::ConnectTo(Group group) {
  connection_ = std::make_unique<Connection>(std::move(group), spec_.rank, spec_.rank_size,
                                             &duties_, steps_before_);
}

std::byte* Control::backend_memory() {
  return static_cast<std::byte*>(endpoint().group().segment.data()) + Board::Bytes(spec_.rank_size);
}

std::shared_ptr<Lobby> Control::lobby() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connection_ == nullptr ? nullptr : connection_->endpoint.group().lobby;
}

// A call that failed ends the group after the last step of the previous call, which is complete.
Status Control::Call::End(Status status) {
  const bool refused = control_->connection_ != nullptr && control_->connection_->step.refused();
  if (status.ok() || refused || control_->keeps_group_) return status;
  static_cast<void>(control_->Fail(status, std::max(control_->step_number(), step_before_ + 1)));
  if (status.code() != ERROR_RANK_MISMATCH) return status;
  return Error(status.code(), status.message(), "; this communicator has ended");
}

Status Control::Agree(const Agreement& agreement) {
  COLLOPS_RETURN_IF_ERROR(CheckBoard());
  COLLOPS_RETURN_IF_ERROR(step().Begin(agreement, timeout_s()));
  COLLOPS_RETURN_IF_ERROR(step().Agree());
  return step().End();
}

Status Control::Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all) {
  COLLOPS_RETURN_IF_ERROR(CheckBoard());
  const Board& board = endpoint().board();
  for (int64_t begin = 0; begin == 0 || begin < bytes; begin += kShareBytes) {
    const auto piece = static_cast<size_t>(std::min(bytes - begin, kShareBytes));
    COLLOPS_RETURN_IF_ERROR(step().Begin(agreement, timeout_s()));
    const uint64_t number = step().number();
    // memcpy takes no null address, also of 0 bytes.
    if (piece > 0) {
      std::memcpy(board.shared(spec_.rank, number), static_cast<const std::byte*>(mine) + begin,
                  piece);
    }
    step().Publish();
    COLLOPS_RETURN_IF_ERROR(step().AwaitAll());
    for (int r = 0; r < spec_.rank_size && piece > 0; ++r) {
      std::memcpy(static_cast<std::byte*>(all) + r * bytes + begin, board.shared(r, number), piece);
    }
    COLLOPS_RETURN_IF_ERROR(step().End());
  }
  return Ok();
}

Status Control::MeetPairs(const char* name, const std::vector<PairMark>& pairs) {
  COLLOPS_RETURN_IF_ERROR(CheckBoard());
  RankSet peers = RankSet::None(spec_.rank_size);
  for (const PairMark& pair : pairs) {
    endpoint().MarkPair(pair.peer, pair.mine);
    peers.Add(pair.peer);
  }
  const Deadline deadline = Deadline::After(timeout_s());
  for (const PairMark& pair : pairs) {
    while (!endpoint().HasMarked(pair.peer, pair.theirs)) {
      COLLOPS_RETURN_IF_ERROR(Peek(name, 0, peers));
      COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, name, ": rank ", spec_.rank,
                        " was interrupted");
      COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, name, ": timed out after ",
                        deadline.timeout_s(), " s: ", endpoint().DescribeRank(pair.peer),
                        ", has not come to its part of the message");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return Ok();
}

Status Control::Refuse(const char* name, const Status& reason) {
  return step().Refuse(name, reason, timeout_s());
}

Status Control::Peek(const char* name, uint64_t call, const RankSet& needed) const {
  if (connection_ == nullptr) return Ok();
  const Status loss = connection_->endpoint.FindLossOnStreams(calls_on_streams_, needed);
  // A rank that ended the group and then left is reported with the group's failure.
  COLLOPS_RETURN_IF_ERROR(connection_->endpoint.GroupFailure());
  if (loss.ok()) return Ok();
  const std::string begin =
      call == 0 ? Concat(name, ": ") : Concat(name, ": call ", call, " failed: ");
  return Error(loss.code(), begin, loss.message());
}

Status Control::FindLossAmong(const std::vector<int>& ranks, bool also_left) const {
  if (connection_ == nullptr) return Ok();
  const Status loss = connection_->endpoint.FindLossAmong(ranks, also_left);
  if (also_left) COLLOPS_RETURN_IF_ERROR(connection_->endpoint.GroupFailure());
  return loss;
}

// The failure of the parent, while the call of the parent that this subgroup runs in is not over.
Status Control::ParentFailure() const {
  const std::shared_ptr<Control> parent = spec_.parent.lock();
  if (parent == nullptr || parent->connection_ == nullptr) return Ok();
  return parent->connection_->endpoint.GroupFailure(parent->step_number());
}

Status Control::Fail(const Status& status, uint64_t step) {
  const std::shared_ptr<Control> parent = spec_.parent.lock();
  // A subgroup runs inside a call of its parent, which fails with it. The parent first: a rank that
  // sees this one hang up finds the reason there.
  if (parent != nullptr) static_cast<void>(parent->Fail(status, parent->step_number()));
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    FailLocked(status, step);
  }
  if (meeting_ != nullptr) meeting_->TellCancelled();
  return status;
}

Status Control::FailUnfinished(const Status& status) {
  const uint64_t step = step_number();
  return Fail(status, endpoint().HasFinished(spec_.rank, step) ? step + 1 : step);
}

void Control::FailLocked(const Status& status, uint64_t step) {
  if (!failed_.exchange(true)) failure_ = status;
  if (meeting_ != nullptr) meeting_->Cancel(failure_);
  if (connection_ != nullptr) {
    connection_->endpoint.PublishFailure(failure_, step);
    if (left_) PublishLeft(failure_.message());
  }
}

void Control::PublishLeft(const std::string& reason) {
  connection_->endpoint.PublishLeft(reason, streams_ended_ ? calls_on_streams_.load() : 0, leaves_);
  connection_->endpoint.group().lobby.reset();
}

// A reason that names this rank, "rank 0 called close()", says already what it did.
std::string Control::ActOfRank(const char* act, const std::string& reason) const {
  const std::string rank = Concat("rank ", spec_.rank);
  return reason.rfind(rank + " ", 0) == 0 ? reason : Concat(rank, act, reason);
}

void Control::Abort(const std::string& reason) {
  End(Error(ERROR_ABORTED, ActOfRank(" aborted: ", reason)), false, reason);
}

void Control::Close(const std::string& reason, Leaving how) {
  if (how != kClosed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaves_ = how;
  }
  End(Error(ERROR_ABORTED, ActOfRank(" closed it: ", reason)), true, reason);
}

// Ends this rank's use of the group, from any thread. A call that runs now ends on all ranks.
// Without one, a rank that closes does not disturb the others until they wait for it.
void Control::End(const Status& status, bool leave, const std::string& reason) {
  if (Inherited()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    EndLocked(status, leave, reason);
  }
  if (meeting_ != nullptr) meeting_->TellCancelled();
}

void Control::EndLocked(const Status& status, bool leave, const std::string& reason) {
  if (!failed_.exchange(true)) failure_ = status;
  left_ = left_ || leave;
  if (!has_board()) return;
  if (meeting_ != nullptr) meeting_->Stop();
  const bool in_call = busy_.load();
  if (connection_ == nullptr) {
    if (in_call) return;  // Connect() sees it and returns soon
    MarkMet();
    Group group;
    if (!meeting_->TryComplete(&group))
      return meeting_->Cancel(leave ? Left(spec_.rank, reason) : status);
    ConnectTo(std::move(group));
  }
  if (in_call || !leave) connection_->endpoint.PublishFailure(failure_, kOutsideSteps);
  if (leave) PublishLeft(reason);
}

}  // namespace collops::control

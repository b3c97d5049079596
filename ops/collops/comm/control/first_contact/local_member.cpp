#include "collops/comm/control/first_contact/local_meeting.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <thread>
#include <utility>

#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/core/process/token.h"
#include "collops/core/sha256.h"

namespace collops::control {
namespace {

// 0: not drawn yet; a child of fork() draws its own.
std::atomic<uint64_t> process_number{0};

[[maybe_unused]] const int draws_after_fork =
    pthread_atfork(nullptr, nullptr, [] { process_number.store(0); });

uint64_t ProcessNumber() {
  uint64_t number = process_number.load();
  if (number != 0) return number;
  const uint64_t drawn = DrawToken() | 1;
  return process_number.compare_exchange_strong(number, drawn) ? drawn : number;
}

Origin MakeOrigin(CommMode mode) {
  Origin origin;
  origin.maker = ProcessNumber();
  if (mode != COMM_MULTI_THREAD) return origin;
  thread_local const uint64_t thread_number = DrawToken() | 1;
  origin.maker ^= thread_number;
  origin.made = Origin::Clock::now();
  return origin;
}

}  // namespace

// 128 bits of hash, so that two jobs or domains never share a name by accident.
std::string SocketName(const GroupSpec& spec, const JobIdentity& job) {
  // Ranks of different backends do not meet: their shared memory differs.
  std::string key =
      std::to_string(geteuid()) + '\0' + job.id + '\0' + spec.backend + '\0' + spec.comm_domain;
  if (!spec.meeting.empty()) key += '\0' + spec.meeting;
  return "collops-" + Hex(Sha256(key)).substr(0, 32);
}

std::unique_ptr<Meeting> Meeting::Create(const GroupSpec& spec, const JobIdentity& job,
                                         const SegmentShape& segment, bool doorbell) {
  if (spec.rank > 0) return std::make_unique<MeetingMember>(spec, job, segment);
  return std::make_unique<MeetingLeader>(spec, job, segment, doorbell);
}

Peer PeerFrom(pid_t pid, std::vector<UniqueFd> fds) {
  Peer peer;
  peer.pid = pid;
  if (!fds.empty()) peer.mailbox = SharedFd::OfSocket(std::move(fds[0]));
  if (fds.size() > 1) peer.lifeline = SharedFd(std::move(fds[1]));
  return peer;
}

std::vector<int> DescriptorsOf(const Peer& peer) {
  std::vector<int> fds = {peer.mailbox.get()};
  if (peer.lifeline.valid()) fds.push_back(peer.lifeline.get());
  return fds;
}

Frame Hello::frame() const {
  FieldWriter fields = LocalMessageOf(MessageKind::kHello);
  fields.Number(static_cast<uint64_t>(rank)).Number(static_cast<uint64_t>(rank_size));
  fields.Number(static_cast<uint64_t>(pid)).Number(origin.maker);
  fields.Number(static_cast<uint64_t>(origin.made.time_since_epoch().count()));
  for (const TunedSize& row : TunedSizes()) fields.Number(static_cast<uint64_t>(tuning.*row.size));
  // From 0 on: a field has no sign.
  fields.Number(static_cast<uint64_t>(place.cpu + 1)).Number(static_cast<uint64_t>(place.node + 1));
  return fields.frame();
}

bool Hello::Read(const Frame& frame, Hello* hello) {
  constexpr int kMost = std::numeric_limits<int>::max();
  FieldReader fields(frame);
  if (ReadLocalKind(&fields) != MessageKind::kHello) return false;
  hello->rank = fields.Int(0, kMost - 1);
  hello->rank_size = fields.Int(hello->rank + 1, kMost);
  hello->pid = fields.Int(0, kMost);
  hello->origin.maker = fields.Number();
  hello->origin.made =
      Origin::Clock::time_point(Origin::Clock::duration(static_cast<int64_t>(fields.Number())));
  for (const TunedSize& row : TunedSizes()) {
    hello->tuning.*row.size = static_cast<int64_t>(fields.Number());
  }
  hello->place.cpu = fields.Int(0, kMost) - 1;
  hello->place.node = fields.Int(0, kMost) - 1;
  return fields.Done();
}

Status LocalMeeting::MakeOwnPeer() {
  self_.pid = getpid();
  UniqueFd mailbox;
  COLLOPS_RETURN_IF_ERROR(SocketPair(&inbox_, &mailbox));
  self_.mailbox = SharedFd::OfSocket(std::move(mailbox));
  // The rank opens the pidfd on itself, so it works where the others cannot see its pid. Without
  // pidfds (old kernels, sandboxes) only the mailbox's hang-up shows that the rank has ended. Ranks
  // that are threads need none: they end with their whole process.
  if (spec_.comm_mode == COMM_MULTI_PROCESS) self_.lifeline = SharedFd(OpenProcess(self_.pid));
  return Ok();
}

std::string LocalMeeting::Describe() const {
  return Concat("comm_domain \"", spec_.comm_domain, "\" of job ", job_.id, " (", job_.source, ")");
}

std::string LocalMeeting::DescribePlace() const {
  if (spec_.comm_domain.empty()) return DescribeJob(job_);
  return Concat("comm_domain \"", spec_.comm_domain, "\" (", DescribeJob(job_), ")");
}

void LocalMeeting::TellWaitingFor(const std::string& whom) {
  waiting_.Tell(
      [&] { return WaitingText(spec_.rank, spec_.comm_domain, whom, DescribeJob(job_)); });
}

MeetingMember::MeetingMember(const GroupSpec& spec, const JobIdentity& job,
                             const SegmentShape& segment)
    : LocalMeeting(spec, job, segment), origin_(MakeOrigin(spec.comm_mode)) {}

MeetingMember::~MeetingMember() {
  Cancel(Error(ERROR_PEER_LOST, "it closed its communicator"));
}

Status MeetingMember::TryConnect() {
  UniqueFd socket = ConnectTo(name_);
  if (!socket.valid()) return OutOfDescriptors() ? TooManyFiles() : Ok();
  uid_t uid = 0;
  COLLOPS_CHECK_ARG(
      SameUser(socket, &leader_pid_, &uid), ERROR_PEER_LOST, "first contact of ", Describe(),
      ": process ", leader_pid_, " of another user (uid ", uid,
      ") listens under the name of this meeting: end it, or set another COLLOPS_JOB_ID");
  leader_process_ = OpenProcess(leader_pid_);
  if (!self_.mailbox.valid()) COLLOPS_RETURN_IF_ERROR(MakeOwnPeer());
  Connection leader(std::move(socket), Concat("process ", leader_pid_));
  leader.LimitFrames(kMostLocalFrameBytes);
  const Hello hello = {spec_.rank, spec_.rank_size, self_.pid,
                       origin_,    spec_.tuning,    CpuPlace::Here()};
  if (leader.Send(hello.frame(), DescriptorsOf(self_))) leader_ = std::move(leader);
  return Ok();
}

Status MeetingMember::Complete(const Deadline& deadline, Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  while (!welcome_) {
    if (deadline.Passed()) return TimedOut(deadline);
    TellWaitingFor(Missing());
    const Status wanted = CheckWanted();
    // Rank 0 may have come meanwhile; Cancel() then tells it why this rank goes.
    if (!wanted.ok() && !leader_.alive()) static_cast<void>(TryConnect());
    COLLOPS_RETURN_IF_ERROR(wanted);
    const Status coming = CheckComing();
    // Rank 0 may have sent the welcome and closed its socket.
    if (!leader_.HasArrived()) COLLOPS_RETURN_IF_ERROR(coming);
    COLLOPS_RETURN_IF_ERROR(Explained(Wait(group)));
  }
  group->inbox = std::move(inbox_);
  leader_ = Connection();
  return Ok();
}

// One round: connect, take a message, or wait a moment.
Status MeetingMember::Wait(Group* group) {
  if (!leader_.alive()) {
    COLLOPS_RETURN_IF_ERROR(TryConnect());
    if (leader_.alive()) return Ok();
    // When a process ends, its sockets close before its pidfd becomes readable.
    COLLOPS_CHECK_ARG(!leader_process_.valid() || !Readable(leader_process_.get()), ERROR_PEER_LOST,
                      "rank 0 (pid ", leader_pid_, ") ended during first contact of ", Describe());
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return Ok();
  }
  Frame frame;
  std::vector<UniqueFd> fds;
  if (leader_.Receive(&frame, &fds)) {
    return leader_.lost_descriptors() ? TooManyFiles() : Handle(frame, std::move(fds), group);
  }
  if (!leader_.alive()) return LeaderHungUp();
  AwaitReady({leader_.Polled()});
  return Ok();
}

bool MeetingMember::TryComplete(Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  while (leader_.HasArrived() && !welcome_) {
    if (!Wait(group).ok()) return false;
  }
  if (!welcome_) return false;
  group->inbox = std::move(inbox_);
  leader_ = Connection();
  return true;
}

Status MeetingMember::Handle(const Frame& frame, std::vector<UniqueFd> fds, Group* group) {
  constexpr size_t kMostProgressBytes = 512;
  FieldReader fields(frame);
  const MessageKind kind = ReadLocalKind(&fields);
  if (kind == MessageKind::kVerdict) return TakeVerdict(frame);
  if (kind == MessageKind::kProgress) {
    missing_ = fields.Text(kMostProgressBytes);
    return Ok();
  }
  if (kind == MessageKind::kPeer) {
    const int rank = fields.Int(0, spec_.rank_size - 1);
    const pid_t pid = fields.Int(0, std::numeric_limits<int>::max());
    COLLOPS_CHECK_ARG(fields.Done() && !fds.empty(), ERROR_PEER_LOST,
                      "rank 0 introduced an invalid rank ", rank);
    group->peers[static_cast<size_t>(rank)] = PeerFrom(pid, std::move(fds));
    return Ok();
  }
  const bool welcome = kind == MessageKind::kWelcome && !fds.empty();
  if (!welcome || fields.Number() != static_cast<uint64_t>(segment_.bytes)) return OtherVersion();
  if (fds.size() > 1) group->doorbell = std::move(fds[1]);
  COLLOPS_RETURN_IF_ERROR(Segment::Map(std::move(fds[0]), segment_.bytes, &group->segment));
  welcome_ = true;
  return Ok();
}

// One for groups of another size does not concern this rank, which may use the name next.
Status MeetingMember::TakeVerdict(const Frame& frame) {
  Status verdict;
  int rank_size = 0;
  if (!ReadLocalVerdict(frame, &verdict, &rank_size)) return OtherVersion();
  leader_ = Connection();
  return rank_size == 0 || rank_size == spec_.rank_size ? verdict : Ok();
}

Status MeetingMember::OtherVersion() const {
  return Error(ERROR_RANK_MISMATCH, Describe(), ": rank 0 (pid ", leader_pid_, ") and rank ",
               spec_.rank, " (pid ", self_.pid, ") run different versions of collops: install one");
}

// The leader's process has ended, or the leader failed and will listen again.
Status MeetingMember::LeaderHungUp() {
  const bool alive = leader_process_.valid() && !Readable(leader_process_.get());
  COLLOPS_CHECK_ARG(alive, ERROR_PEER_LOST, "rank 0 (pid ", leader_pid_,
                    ") ended during first contact of ", Describe());
  return Ok();
}

std::string MeetingMember::Missing() const {
  const std::string rank_0 = Concat("rank 0 of ", spec_.rank_size);
  if (!leader_.alive()) return rank_0;
  return missing_.empty() ? Concat(rank_0, ", pid ", leader_pid_, ", which has made no call")
                          : missing_;
}

Status MeetingMember::TimedOut(const Deadline& deadline) const {
  const std::string where =
      Concat(" within ", deadline.timeout_s(), " s: first contact of ", DescribePlace());
  if (!leader_.alive()) {
    COLLOPS_CHECK_ARG(!IsTaken(name_), ERROR_TIMEOUT, Missing(), " did not connect", where,
                      ". Another process on this host has taken the socket of this job and "
                      "comm_domain, and does not answer");
    return Error(ERROR_TIMEOUT, Missing(), " did not connect", where,
                 ". Does it run, in the same job and network namespace, with this comm_domain?");
  }
  if (missing_.empty()) {
    return Error(ERROR_TIMEOUT, "rank 0 (pid ", leader_pid_, ") has made no call", where);
  }
  return Error(ERROR_TIMEOUT, missing_, " did not connect", where,
               ". Ranks meet in the same job and network namespace, with the same comm_domain");
}

Status MeetingMember::Listen() {
  Frame frame;
  if (!leader_.Receive(&frame)) {
    if (leader_.alive()) AwaitReady({leader_.Polled()});
    return Ok();
  }
  FieldReader fields(frame);
  const MessageKind kind = ReadLocalKind(&fields);
  if (kind == MessageKind::kOtherVersion) return OtherVersion();
  return kind == MessageKind::kVerdict ? TakeVerdict(frame) : Ok();
}

void MeetingMember::Cancel(const Status& reason) {
  const Frame verdict = LocalVerdictFrame(reason);
  static_cast<void>(leader_.Send(verdict));
  leader_ = Connection();
  // Peers that already have this rank's mailbox find the verdict there, and see it hang up.
  if (inbox_.valid()) static_cast<void>(Send(inbox_.get(), verdict.data(), verdict.size(), {}));
  inbox_.reset();
}

}  // namespace collops::control

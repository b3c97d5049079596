#include <thread>

#include "collops/comm/control/first_contact/local_meeting.h"

namespace collops::control {

MeetingMember::~MeetingMember() {
  Cancel(Error(ERROR_PEER_LOST, "it closed its communicator"));
}

void MeetingMember::Begin() {
  (void)TryConnect();
}

Status MeetingMember::TryConnect() {
  UniqueFd socket = ConnectTo(name_);
  if (!socket.valid()) return OutOfDescriptors() ? TooManyFiles() : Ok();
  uid_t uid = 0;
  COLLOPS_CHECK_ARG(
      SameUser(socket, &leader_pid_, &uid), ERROR_PEER_LOST, "first contact of ",
      Describe(spec_, job_), ": process ", leader_pid_, " of another user (uid ", uid,
      ") listens under the name of this meeting: end it, or set another COLLOPS_JOB_ID");
  leader_process_ = OpenProcess(leader_pid_);
  if (!self_.mailbox.valid())
    COLLOPS_RETURN_IF_ERROR(MakeOwnPeer(spec_.comm_mode, &self_, &inbox_));
  MeetingMessage hello;
  hello.type = MessageType::kHello;
  hello.rank = spec_.rank;
  hello.rank_size = spec_.rank_size;
  hello.pid = self_.pid;
  hello.origin = origin_;
  hello.tuning = spec_.tuning;
  if (SendMessage(socket.get(), hello, Descriptors(self_)) == SocketResult::kDone) {
    socket_ = std::move(socket);
  }
  return Ok();
}

Status MeetingMember::Complete(const Deadline& deadline, Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  while (!welcome_) {
    if (deadline.Passed()) return TimedOut(deadline);
    TellWaiting(WaitingLine(spec_, job_, Missing()));
    const Status wanted = CheckWanted();
    // Rank 0 may have come meanwhile; Cancel() then tells it why this rank goes.
    if (!wanted.ok() && !socket_.valid()) (void)TryConnect();
    COLLOPS_RETURN_IF_ERROR(wanted);
    const Status coming = CheckComing();
    // Rank 0 may have sent the welcome and closed its socket.
    if (!socket_.valid() || !Readable(socket_.get())) COLLOPS_RETURN_IF_ERROR(coming);
    COLLOPS_RETURN_IF_ERROR(Explained(Wait(group)));
  }
  group->inbox = std::move(inbox_);
  socket_.reset();
  return Ok();
}

// One round: connect, take a message, or wait a moment.
Status MeetingMember::Wait(Group* group) {
  if (!socket_.valid()) {
    COLLOPS_RETURN_IF_ERROR(TryConnect());
    if (socket_.valid()) return Ok();
    // When a process ends, its sockets close before its pidfd becomes readable.
    COLLOPS_CHECK_ARG(!leader_process_.valid() || !Readable(leader_process_.get()), ERROR_PEER_LOST,
                      "rank 0 (pid ", leader_pid_, ") ended during first contact of ",
                      Describe(spec_, job_));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return Ok();
  }
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  switch (ReceiveMessage(socket_.get(), &message, &fds)) {
    case SocketResult::kDone:
      return Handle(message, std::move(fds), group);
    case SocketResult::kWouldBlock:
      PollSockets({socket_.get()});
      return Ok();
    case SocketResult::kClosed:
      return LeaderHungUp();
    case SocketResult::kNoDescriptors:
      return TooManyFiles();
  }
  return Ok();
}

bool MeetingMember::Settle(Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  while (socket_.valid() && Readable(socket_.get()) && !welcome_) {
    if (!Wait(group).ok()) return false;
  }
  if (!welcome_) return false;
  group->inbox = std::move(inbox_);
  socket_.reset();
  return true;
}

Status MeetingMember::Handle(const MeetingMessage& message, std::vector<UniqueFd> fds,
                             Group* group) {
  switch (message.type) {
    case MessageType::kProgress:
      present_ = message.present;
      return Ok();
    case MessageType::kPeer:
      COLLOPS_CHECK_ARG(message.rank >= 0 && message.rank < spec_.rank_size && !fds.empty(),
                        ERROR_PEER_LOST, "rank 0 introduced an invalid rank ", message.rank);
      group->peers[static_cast<size_t>(message.rank)] = PeerFrom(message, std::move(fds));
      return Ok();
    case MessageType::kWelcome:
      if (fds.empty() || message.segment_bytes != segment_bytes_) return OtherVersion();
      if (fds.size() > 1) group->doorbell = std::move(fds[1]);
      COLLOPS_RETURN_IF_ERROR(
          Segment::Map(std::move(fds[0]), message.segment_bytes, &group->segment));
      welcome_ = true;
      return Ok();
    case MessageType::kVerdict:
      socket_.reset();
      return Concerns(message) ? VerdictOf(message) : Ok();
    case MessageType::kHello:
    case MessageType::kOtherVersion:
      break;
  }
  return OtherVersion();
}

Status MeetingMember::OtherVersion() const {
  return Error(ERROR_RANK_MISMATCH, Describe(spec_, job_), ": rank 0 (pid ", leader_pid_,
               ") and rank ", spec_.rank, " (pid ", self_.pid,
               ") run different versions of collops: install one");
}

// A verdict for groups of another size does not concern this rank, which may use the name next.
bool MeetingMember::Concerns(const MeetingMessage& verdict) const {
  return verdict.rank_size == 0 || verdict.rank_size == spec_.rank_size;
}

// The leader's process has ended, or the leader failed and will listen again.
Status MeetingMember::LeaderHungUp() {
  socket_.reset();
  const bool alive = leader_process_.valid() && !Readable(leader_process_.get());
  COLLOPS_CHECK_ARG(alive, ERROR_PEER_LOST, "rank 0 (pid ", leader_pid_,
                    ") ended during first contact of ", Describe(spec_, job_));
  return Ok();
}

std::string MeetingMember::Missing() const {
  const std::string rank_0 = Concat("rank 0 of ", spec_.rank_size);
  if (!socket_.valid()) return rank_0;
  if (present_.none()) return Concat(rank_0, ", pid ", leader_pid_, ", which has made no call");
  return RanksMissing(present_, spec_.rank_size);
}

Status MeetingMember::TimedOut(const Deadline& deadline) const {
  const std::string where =
      Concat(" within ", deadline.timeout_s(), " s: first contact of ", DescribePlace(spec_, job_));
  if (!socket_.valid()) {
    COLLOPS_CHECK_ARG(!IsTaken(name_), ERROR_TIMEOUT, Missing(), " did not connect", where,
                      ". Another process on this host has taken the socket of this job and "
                      "comm_domain, and does not answer");
    return Error(ERROR_TIMEOUT, Missing(), " did not connect", where,
                 ". Does it run, in the same job and network namespace, with this comm_domain?");
  }
  if (present_.none()) {
    return Error(ERROR_TIMEOUT, "rank 0 (pid ", leader_pid_, ") has made no call", where);
  }
  return Error(ERROR_TIMEOUT, Missing(), " did not connect", where,
               ". Ranks meet in the same job and network namespace, with the same comm_domain");
}

Status MeetingMember::Listen() {
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  const SocketResult result = ReceiveMessage(socket_.get(), &message, &fds);
  if (result == SocketResult::kWouldBlock) PollSockets({socket_.get()});
  if (result == SocketResult::kClosed) socket_.reset();
  if (result == SocketResult::kDone && message.type == MessageType::kOtherVersion) {
    return OtherVersion();
  }
  const bool verdict = result == SocketResult::kDone && message.type == MessageType::kVerdict;
  if (verdict && !Concerns(message)) socket_.reset();
  return verdict && Concerns(message) ? VerdictOf(message) : Ok();
}

void MeetingMember::Cancel(const Status& reason) {
  if (socket_.valid()) SendVerdict(socket_.get(), reason);
  socket_.reset();
  // Peers that already have this rank's mailbox find the verdict there, and see it hang up.
  if (inbox_.valid()) SendVerdict(inbox_.get(), reason);
  inbox_.reset();
}

}  // namespace collops::control

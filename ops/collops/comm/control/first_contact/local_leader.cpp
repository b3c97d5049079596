#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "collops/comm/control/first_contact/local_meeting.h"

namespace collops::control {
namespace {

uint64_t Fnv1a(const std::string& text, uint64_t hash) {
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  }
  return hash;
}

// Longer than a leader needs from binding its name to its first answer.
constexpr double kSilenceS = 1.0;
// Clients that have said nothing. Each of the ranks may be one for a moment.
constexpr std::ptrdiff_t kMostSilent = kMaxRanks;

constexpr double kLingerS = 0.8;

}  // namespace

// 128 bits of hash, so that two jobs or domains never share a name by accident.
std::string SocketName(const GroupSpec& spec, const JobIdentity& job) {
  // Ranks of different backends do not meet: their shared memory differs.
  const std::string key =
      std::to_string(geteuid()) + '\0' + job.id + '\0' + spec.backend + '\0' + spec.comm_domain;
  char name[64];
  std::snprintf(name, sizeof(name), "collops-%016llx%016llx",
                static_cast<unsigned long long>(Fnv1a(key, 0xcbf29ce484222325ULL)),
                static_cast<unsigned long long>(Fnv1a(key, 0x6c62272e07bb0142ULL)));
  return name;
}

std::unique_ptr<Meeting> Meeting::Create(const GroupSpec& spec, const JobIdentity& job,
                                         int64_t segment_bytes, bool doorbell) {
  std::unique_ptr<Meeting> meeting;
  if (spec.rank == 0) {
    meeting =
        std::make_unique<MeetingLeader>(spec, job, SocketName(spec, job), segment_bytes, doorbell);
  } else {
    meeting = std::make_unique<MeetingMember>(spec, job, SocketName(spec, job), segment_bytes);
  }
  meeting->watch_ = spec.watch;
  return meeting;
}

MeetingLeader::~MeetingLeader() {
  Cancel(Error(ERROR_PEER_LOST, "rank 0 closed its communicator"));
}

void MeetingLeader::Begin() {
  listener_ = control::Listen(name_);
  spare_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

Status MeetingLeader::Complete(const Deadline& deadline, Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  present_.set(0);
  Status status = MakeOwnPeer(spec_.comm_mode, &self_, &inbox_);
  if (status.ok()) status = Gather(deadline);
  if (status.ok()) status = Introduce(deadline, group);
  if (!status.ok()) {
    const Status seen = status;
    status = Explained(seen);
    // spec.watch has the same error, so the other ranks get it without this rank.
    const bool told = status.code() != seen.code();
    // A leader that was stopped, or whose deadline has passed, does not wait for late clients.
    const bool stopped = status.code() == ERROR_ABORTED && left_.none();
    if (!told && !stopped && !deadline.Passed() && Wanted()) AnswerLateRanks(status);
    return status;
  }
  listener_.reset();
  spare_.reset();
  clients_.clear();
  return Ok();
}

Status MeetingLeader::Gather(const Deadline& deadline) {
  while (present_.count() < static_cast<size_t>(spec_.rank_size)) {
    if (!listener_.valid()) {
      COLLOPS_RETURN_IF_ERROR(Challenge(deadline));
      continue;
    }
    const std::string missing = RanksMissing(present_, spec_.rank_size);
    TellWaiting(WaitingLine(spec_, job_, missing));
    COLLOPS_CHECK_ARG(
        !deadline.Passed(), ERROR_TIMEOUT, missing, " did not connect within ",
        deadline.timeout_s(), " s: first contact of ", DescribePlace(spec_, job_),
        ". Ranks meet in the same job and network namespace, with the same comm_domain");
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_RETURN_IF_ERROR(CheckComing());
    COLLOPS_RETURN_IF_ERROR(AcceptClients());
    // New clients first: one may replace a client of the same rank that has gone.
    for (Client& client : clients_) {
      if (client.rank < 0) COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));
    }
    for (Client& client : clients_) {
      if (client.rank > 0) COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));
    }
    TellProgress();
    std::vector<int> sockets = {listener_.get()};
    for (const Client& client : clients_) {
      if (client.socket.valid()) sockets.push_back(client.socket.get());
    }
    if (present_.count() < static_cast<size_t>(spec_.rank_size)) PollSockets(sockets);
  }
  return Ok();
}

// Another socket listens under this name: another process that claims rank 0, or a leader that is
// just ending. Connect to it: a leader answers with a verdict, or closes.
Status MeetingLeader::Challenge(const Deadline& deadline) {
  MeetingMember rival(spec_, job_, name_, segment_bytes_);
  COLLOPS_RETURN_IF_ERROR(rival.TryConnect());
  if (rival.connected()) {
    unanswered_.reset();
  } else if (!unanswered_) {
    unanswered_ = Deadline::After(kSilenceS);
  }
  while (!listener_.valid() && rival.connected()) {
    TellWaiting(WaitingLine(
        spec_, job_,
        Concat("process ", rival.leader_pid(), ", which also claims rank 0 and has made no call")));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "process ", rival.leader_pid(),
                      " also claims rank 0 of ", Describe(spec_, job_), " and made no call in ",
                      deadline.timeout_s(), " s");
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_RETURN_IF_ERROR(rival.Listen());
  }
  listener_ = control::Listen(name_);
  if (listener_.valid()) return Ok();
  COLLOPS_CHECK_ARG(!unanswered_ || !unanswered_->Passed(), ERROR_RT_FAIL, "first contact of ",
                    Describe(spec_, job_),
                    ": another process on this host has taken the socket of this job and "
                    "comm_domain, and does not answer: end it, or set another COLLOPS_JOB_ID");
  COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "cannot listen for ", Describe(spec_, job_));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return CheckWanted();
}

// Drops clients that have gone, and the oldest of those that have said nothing, as long as there
// are too many of them: a rank says hello as soon as it has connected, and one that is dropped
// before it could speak connects again.
void MeetingLeader::DropStrangers() {
  const auto is_silent = [](const Client& client) {
    return client.socket.valid() && client.rank_size == 0;
  };
  auto silent = std::count_if(clients_.begin(), clients_.end(), is_silent);
  for (Client& client : clients_) {
    if (silent <= kMostSilent) break;
    if (!is_silent(client)) continue;
    client.socket.reset();
    --silent;
  }
  const auto gone = [](const Client& client) { return !client.socket.valid() && client.rank < 0; };
  clients_.erase(std::remove_if(clients_.begin(), clients_.end(), gone), clients_.end());
}

Status MeetingLeader::AcceptClients() {
  DropStrangers();
  // A flood of strangers does not keep this thread from those who are there.
  for (int i = 0; i < kMaxRanks; ++i) {
    UniqueFd socket = Accept(listener_);
    if (!socket.valid()) return OutOfDescriptors() ? TooManyFiles() : Ok();
    pid_t pid = 0;
    uid_t uid = 0;
    if (!SameUser(socket, &pid, &uid)) continue;
    clients_.push_back({std::move(socket), -1, -1, 0, {}, {}});
    clients_.back().peer.pid = pid;
  }
  return Ok();
}

// Takes the messages of a client that have arrived.
Status MeetingLeader::ReadFrom(Client* client) {
  if (!client->socket.valid()) return Ok();
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  switch (ReceiveMessage(client->socket.get(), &message, &fds)) {
    case SocketResult::kWouldBlock:
      return Ok();
    case SocketResult::kClosed:
      client->socket.reset();
      COLLOPS_CHECK_ARG(client->rank < 0, ERROR_PEER_LOST, "rank ", client->rank, " (pid ",
                        client->peer.pid, ") ended during first contact of ",
                        Describe(spec_, job_));
      return Ok();
    case SocketResult::kNoDescriptors:
      return TooManyFiles();
    case SocketResult::kDone:
      return client->rank < 0 ? Greet(client, message, std::move(fds)) : Leaves(client, message);
  }
  return Ok();
}

// Any process of this user may connect. A process that does not begin with a rank's hello is no
// rank and is disconnected.
Status MeetingLeader::Greet(Client* client, const MeetingMessage& hello,
                            std::vector<UniqueFd> fds) {
  if (hello.type == MessageType::kOtherVersion) {
    client->rank_size = spec_.rank_size;  // it is told the reason, too
    return Error(ERROR_RANK_MISMATCH, Describe(spec_, job_), ": process ", client->peer.pid,
                 " and rank 0 (pid ", self_.pid,
                 ") run different versions of collops: install one");
  }
  Peer peer = PeerFrom(hello, std::move(fds));
  if (hello.type != MessageType::kHello || hello.rank < 0 || hello.rank >= hello.rank_size ||
      !peer.mailbox.valid()) {
    client->socket.reset();
    return Ok();
  }
  client->peer = std::move(peer);
  client->claim = hello.rank < kMaxRanks ? hello.rank : -1;
  client->rank_size = hello.rank_size;
  client->origin = hello.origin;
  return Admit(client, hello);
}

// After its hello a rank sends one message: why it leaves.
Status MeetingLeader::Leaves(Client* client, const MeetingMessage& message) {
  client->socket.reset();
  left_.set(static_cast<size_t>(client->rank));
  const Status verdict = VerdictOf(message);
  return Error(verdict.code(), "rank ", client->rank, " (pid ", client->peer.pid,
               ") left first contact of ", Describe(spec_, job_), ": ", verdict.message());
}

Status MeetingLeader::Admit(Client* client, const MeetingMessage& hello) {
  const std::string who = Concat("rank ", hello.rank, " (pid ", hello.pid, ")");
  COLLOPS_CHECK_ARG(hello.rank_size == spec_.rank_size, ERROR_RANK_MISMATCH, Describe(spec_, job_),
                    ": rankSize is ", spec_.rank_size, " on rank 0 (pid ", self_.pid, ") and ",
                    hello.rank_size, " on ", who);
  // Ranks with different sizes would take different ways in one call, and wait for each other.
  const TunedSize* const size = FirstDifference(spec_.tuning, hello.tuning);
  COLLOPS_CHECK_ARG(size == nullptr, ERROR_RANK_MISMATCH, Describe(spec_, job_),
                    ": COLLOPS_TUNING: ", size->name, " is ", spec_.tuning.*size->size,
                    " on rank 0 (pid ", self_.pid, ") and ", hello.tuning.*size->size, " on ", who,
                    ": give all ranks of a host the same sizes");
  pid_t other = hello.rank == 0 ? self_.pid : 0;
  for (Client& earlier : clients_) {
    if (&earlier == client || earlier.rank != hello.rank || !earlier.socket.valid()) continue;
    if (!ReadFrom(&earlier).ok()) {
      earlier.rank = -1;  // the earlier client of this rank has gone
    } else {
      other = earlier.peer.pid;
    }
  }
  COLLOPS_CHECK_ARG(other == 0, ERROR_RANK_MISMATCH, Describe(spec_, job_), ": rank ", hello.rank,
                    " is claimed twice, by pid ", other, " and by pid ", hello.pid);
  client->rank = hello.rank;
  present_.set(static_cast<size_t>(hello.rank));
  return Ok();
}

void MeetingLeader::TellProgress() {
  if (told_ == present_) return;
  MeetingMessage progress;
  progress.type = MessageType::kProgress;
  progress.present = present_;
  for (const Client& client : clients_) {
    if (client.rank > 0 && client.socket.valid()) {
      (void)SendMessage(client.socket.get(), progress, {});
    }
  }
  told_ = present_;
}

Status MeetingLeader::Introduce(const Deadline& deadline, Group* group) {
  COLLOPS_RETURN_IF_ERROR(Segment::Create(segment_bytes_, &group->segment));
  if (doorbell_) {
    group->doorbell = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!group->doorbell.valid()) return TooManyFiles();
  }
  group->inbox = std::move(inbox_);
  group->peers[0] = std::move(self_);
  for (Client& client : clients_) {
    if (client.rank > 0) group->peers[static_cast<size_t>(client.rank)] = std::move(client.peer);
  }
  for (Client& client : clients_) {
    if (client.rank <= 0) continue;
    MeetingMessage message;
    message.type = MessageType::kPeer;
    for (int r = 0; r < spec_.rank_size; ++r) {
      const Peer& peer = group->peers[static_cast<size_t>(r)];
      message.rank = r;
      message.pid = peer.pid;
      COLLOPS_RETURN_IF_ERROR(SendTo(&client, message, Descriptors(peer), deadline));
    }
  }
  // No rank is welcomed before every rank knows every other one.
  MeetingMessage welcome;
  welcome.type = MessageType::kWelcome;
  welcome.segment_bytes = segment_bytes_;
  std::vector<int> shared = {group->segment.fd()};
  if (doorbell_) shared.push_back(group->doorbell.get());
  for (Client& client : clients_) {
    if (client.rank > 0) {
      COLLOPS_RETURN_IF_ERROR(SendTo(&client, welcome, shared, deadline));
    }
  }
  return Ok();
}

Status MeetingLeader::SendTo(Client* client, const MeetingMessage& message,
                             const std::vector<int>& fds, const Deadline& deadline) {
  for (;;) {
    switch (SendMessage(client->socket.get(), message, fds)) {
      case SocketResult::kDone:
        return Ok();
      case SocketResult::kClosed:
        COLLOPS_RETURN_IF_ERROR(ReadFrom(client));  // takes the reason that it sent before it went
        return Error(ERROR_PEER_LOST, "rank ", client->rank, " ended during first contact of ",
                     Describe(spec_, job_));
      case SocketResult::kWouldBlock:
      case SocketResult::kNoDescriptors:
        break;
    }
    TellWaiting(WaitingLine(
        spec_, job_,
        Concat("rank ", client->rank, " of ", spec_.rank_size, ", which has made no call")));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "rank ", client->rank, " made no call in ",
                      deadline.timeout_s(), " s: first contact of ", Describe(spec_, job_));
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// After a failure the leader answers for a moment longer, so that late ranks get the reason, too,
// instead of waiting until their time-out.
void MeetingLeader::AnswerLateRanks(const Status& reason) {
  const Deadline deadline = Deadline::After(kLingerS);
  // No rank is introduced any more, and accepting a client takes a descriptor.
  spare_.reset();
  told_reason_ = left_;
  told_reason_.set(0);
  while (listener_.valid() && told_reason_.count() < static_cast<size_t>(spec_.rank_size) &&
         !deadline.Passed() && Wanted()) {
    (void)AcceptClients();
    for (Client& client : clients_) SendReason(&client, reason);
    PollSockets({listener_.get()});
  }
  // Clients that are still connecting see the socket close without a verdict, and try again.
  listener_.reset();
  clients_.clear();
}

// Sends a client the reason, once its hello has arrived.
void MeetingLeader::SendReason(Client* client, const Status& reason) {
  if (!client->socket.valid() || (client->rank_size == 0 && !ReadHello(client))) return;
  // A client that was told before wants a new meeting: it waits until this leader closes.
  const auto is_told = [client](const Origin& told) {
    return told.maker == client->origin.maker && told.made < client->origin.made;
  };
  if (std::any_of(told_makers_.begin(), told_makers_.end(), is_told)) return;
  told_makers_.push_back({client->origin.maker, Origin::Clock::now()});
  SendVerdict(client->socket.get(), reason);
  client->socket.reset();
  if (client->claim > 0) told_reason_.set(static_cast<size_t>(client->claim));
}

// Takes a hello without its descriptors: there may be no room for them.
bool MeetingLeader::ReadHello(Client* client) {
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  const SocketResult result = ReceiveMessage(client->socket.get(), &message, &fds);
  if (result == SocketResult::kWouldBlock) return false;
  if (result != SocketResult::kClosed && message.type == MessageType::kOtherVersion) {
    client->rank_size = spec_.rank_size;
    return true;
  }
  if (result == SocketResult::kClosed || message.type != MessageType::kHello ||
      message.rank_size <= 0) {
    client->socket.reset();
    return false;
  }
  client->peer.pid = message.pid;
  client->claim = message.rank >= 0 && message.rank < kMaxRanks ? message.rank : -1;
  client->rank_size = message.rank_size;
  client->origin = message.origin;
  return true;
}

void MeetingLeader::Cancel(const Status& reason) {
  if (listener_.valid()) (void)AcceptClients();
  // Clients of groups of another size wait for another leader; their hello may not have arrived.
  for (const Client& client : clients_) {
    if (client.socket.valid()) SendVerdict(client.socket.get(), reason, spec_.rank_size);
  }
  listener_.reset();
  spare_.reset();
  clients_.clear();
}

}  // namespace collops::control

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>

#include "collops/comm/control/first_contact/local_meeting.h"
#include "collops/comm/control/first_contact/local_socket.h"

namespace collops::control {
namespace {

// Longer than a leader needs from binding its name to its first answer.
constexpr double kSilenceS = 1.0;
// Clients that have said nothing. Each of the ranks may be one for a moment.
constexpr std::ptrdiff_t kMostSilent = kMaxRanks;

// After a failure, late ranks get the reason for so long, instead of waiting until their time-out.
constexpr double kLateS = 0.8;

}  // namespace

MeetingLeader::MeetingLeader(const GroupSpec& spec, const JobIdentity& job,
                             const SegmentShape& segment, bool doorbell)
    : LocalMeeting(spec, job, segment),
      doorbell_(doorbell),
      present_(RankSet::None(spec.rank_size)),
      left_(present_) {}

MeetingLeader::~MeetingLeader() {
  Cancel(Error(ERROR_PEER_LOST, "rank 0 closed its communicator"));
}

void MeetingLeader::Begin() {
  listener_ = control::Listen(name_);
  spare_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

Status MeetingLeader::Complete(const Deadline& deadline, Group* group) {
  group->peers.resize(static_cast<size_t>(spec_.rank_size));
  present_.Add(0);
  Status status = MakeOwnPeer();
  if (status.ok()) status = Gather(deadline);
  if (status.ok()) status = Introduce(deadline, group);
  if (!status.ok()) {
    const Status seen = status;
    status = Explained(seen);
    // spec.watch has the same error, so the other ranks get it without this rank.
    const bool explained = status.code() != seen.code();
    // A leader that was stopped, or whose deadline has passed, does not wait for late clients.
    const bool stopped = status.code() == ERROR_ABORTED && left_.count() == 0;
    if (!explained && !stopped && !deadline.Passed() && Wanted()) AnswerLateRanks(status);
    return status;
  }
  listener_.reset();
  spare_.reset();
  clients_.clear();
  return Ok();
}

Status MeetingLeader::Gather(const Deadline& deadline) {
  while (!present_.all()) {
    if (!listener_.valid()) {
      COLLOPS_RETURN_IF_ERROR(Challenge(deadline));
      continue;
    }
    const std::string missing = RanksMissing(present_, spec_.rank_size);
    TellWaitingFor(missing);
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, missing, " did not connect within ",
                      deadline.timeout_s(), " s: first contact of ", DescribePlace(),
                      ". Ranks meet in the same job and network namespace, with the same "
                      "comm_domain");
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
    if (present_.all()) break;
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const Client& client : clients_) {
      if (client.connection.alive()) polled.push_back(client.connection.Polled());
    }
    AwaitReady(std::move(polled));
  }
  return Ok();
}

// Another socket listens under this name: another process that claims rank 0, or a leader that is
// just ending. Connect to it: a leader answers with a verdict, or closes.
Status MeetingLeader::Challenge(const Deadline& deadline) {
  MeetingMember rival(spec_, job_, segment_);
  COLLOPS_RETURN_IF_ERROR(rival.TryConnect());
  if (rival.connected()) {
    unanswered_.reset();
  } else if (!unanswered_) {
    unanswered_ = Deadline::After(kSilenceS);
  }
  while (!listener_.valid() && rival.connected()) {
    TellWaitingFor(
        Concat("process ", rival.leader_pid(), ", which also claims rank 0 and has made no call"));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "process ", rival.leader_pid(),
                      " also claims rank 0 of ", Describe(), " and made no call in ",
                      deadline.timeout_s(), " s");
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_RETURN_IF_ERROR(rival.Listen());
  }
  listener_ = control::Listen(name_);
  if (listener_.valid()) return Ok();
  COLLOPS_CHECK_ARG(!unanswered_ || !unanswered_->Passed(), ERROR_RT_FAIL, "first contact of ",
                    Describe(),
                    ": another process on this host has taken the socket of this job and "
                    "comm_domain, and does not answer: end it, or set another COLLOPS_JOB_ID");
  COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "cannot listen for ", Describe());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return CheckWanted();
}

// Drops clients that have gone, and the oldest of those that have said nothing, as long as there
// are too many of them: a rank says hello as soon as it has connected, and one that is dropped
// before it could speak connects again.
void MeetingLeader::DropStrangers() {
  const auto is_silent = [](const Client& client) {
    return client.connection.alive() && !client.greeted;
  };
  auto silent = std::count_if(clients_.begin(), clients_.end(), is_silent);
  for (Client& client : clients_) {
    if (silent <= kMostSilent) break;
    if (!is_silent(client)) continue;
    client.connection = Connection();
    --silent;
  }
  const auto gone = [](const Client& client) {
    return !client.connection.alive() && client.rank < 0;
  };
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
    Client client;
    client.connection = Connection(std::move(socket), Concat("process ", pid));
    client.connection.LimitFrames(kMostLocalFrameBytes);
    client.pid = pid;
    clients_.push_back(std::move(client));
  }
  return Ok();
}

// Takes a message of a client that has arrived.
Status MeetingLeader::ReadFrom(Client* client) {
  Frame frame;
  std::vector<UniqueFd> fds;
  if (client->connection.Receive(&frame, &fds)) {
    return client->rank < 0 ? Greet(client, frame, std::move(fds)) : TakeLeave(client, frame);
  }
  COLLOPS_CHECK_ARG(client->connection.alive() || client->rank < 0, ERROR_PEER_LOST, "rank ",
                    client->rank, " (pid ", client->pid, ") ended during first contact of ",
                    Describe());
  return Ok();
}

// Any process of this user may connect. A process that does not begin with a rank's hello is no
// rank and is disconnected; one of another version gets a verdict. False if it is no hello.
bool MeetingLeader::ReadHello(Client* client, const Frame& frame) {
  FieldReader fields(frame);
  client->greeted = ReadLocalKind(&fields) == MessageKind::kOtherVersion;
  if (client->greeted) return false;
  client->greeted = Hello::Read(frame, &client->hello);
  if (client->greeted) {
    client->pid = client->hello.pid;
  } else {
    client->connection = Connection();
  }
  return client->greeted;
}

Status MeetingLeader::Greet(Client* client, const Frame& frame, std::vector<UniqueFd> fds) {
  if (!ReadHello(client, frame)) {
    COLLOPS_CHECK_ARG(!client->greeted, ERROR_RANK_MISMATCH, Describe(), ": process ", client->pid,
                      " and rank 0 (pid ", self_.pid,
                      ") run different versions of collops: install one");
    return Ok();
  }
  if (client->connection.lost_descriptors()) return TooManyFiles();
  client->peer = PeerFrom(client->pid, std::move(fds));
  if (client->peer.mailbox.valid()) return Admit(client);
  client->connection = Connection();
  return Ok();
}

// After its hello a rank sends one message: why it leaves.
Status MeetingLeader::TakeLeave(Client* client, const Frame& frame) {
  client->connection = Connection();
  left_.Add(client->rank);
  Status verdict;
  if (!ReadLocalVerdict(frame, &verdict)) {
    verdict = Error(ERROR_PEER_LOST, "it sent an invalid message");
  }
  return Error(verdict.code(), "rank ", client->rank, " (pid ", client->pid,
               ") left first contact of ", Describe(), ": ", verdict.message());
}

Status MeetingLeader::Admit(Client* client) {
  const Hello& hello = client->hello;
  const std::string who = Concat("rank ", hello.rank, " (pid ", hello.pid, ")");
  COLLOPS_CHECK_ARG(hello.rank_size == spec_.rank_size, ERROR_RANK_MISMATCH, Describe(), ": ",
                    spec_.voice.rank_size, " is ", spec_.rank_size, " on rank 0 (pid ", self_.pid,
                    ") and ", hello.rank_size, " on ", who);
  // Ranks with different sizes would take different ways in one call, and wait for each other.
  const TunedSize* const size = FirstDifference(spec_.tuning, hello.tuning);
  COLLOPS_CHECK_ARG(size == nullptr, ERROR_RANK_MISMATCH, Describe(),
                    ": COLLOPS_TUNING: ", size->name, " is ", spec_.tuning.*size->size,
                    " on rank 0 (pid ", self_.pid, ") and ", hello.tuning.*size->size, " on ", who,
                    ": give all ranks of a host the same sizes");
  pid_t other = hello.rank == 0 ? self_.pid : 0;
  for (Client& earlier : clients_) {
    if (&earlier == client || earlier.rank != hello.rank || !earlier.connection.alive()) continue;
    if (!ReadFrom(&earlier).ok()) {
      earlier.rank = -1;  // the earlier client of this rank has gone
    } else {
      other = earlier.pid;
    }
  }
  COLLOPS_CHECK_ARG(other == 0, ERROR_RANK_MISMATCH, Describe(), ": rank ", hello.rank,
                    " is claimed twice, by pid ", other, " and by pid ", hello.pid);
  client->rank = hello.rank;
  present_.Add(hello.rank);
  return Ok();
}

void MeetingLeader::TellProgress() {
  if (num_shown_ == present_.count()) return;
  num_shown_ = present_.count();
  FieldWriter progress = LocalMessageOf(MessageKind::kProgress);
  progress.Text(RanksMissing(present_, spec_.rank_size));
  for (Client& client : clients_) {
    if (client.rank > 0) static_cast<void>(client.connection.Send(progress.frame()));
  }
}

Status MeetingLeader::Introduce(const Deadline& deadline, Group* group) {
  std::vector<CpuPlace> places(group->peers.size());
  places[0] = CpuPlace::Here();
  for (const Client& client : clients_) {
    if (client.rank > 0) places[static_cast<size_t>(client.rank)] = client.hello.place;
  }
  COLLOPS_RETURN_IF_ERROR(Segment::Create(segment_, places, &group->segment));
  if (doorbell_) {
    group->doorbell = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!group->doorbell.valid()) return TooManyFiles();
  }
  group->inbox = std::move(inbox_);
  group->peers[0] = std::move(self_);
  for (Client& client : clients_) {
    if (client.rank > 0) group->peers[static_cast<size_t>(client.rank)] = std::move(client.peer);
  }
  std::vector<Message> peers;
  for (size_t r = 0; r < group->peers.size(); ++r) {
    const Peer& peer = group->peers[r];
    FieldWriter fields = LocalMessageOf(MessageKind::kPeer);
    fields.Number(r).Number(static_cast<uint64_t>(peer.pid));
    peers.push_back({fields.frame(), DescriptorsOf(peer)});
  }
  // No rank is welcomed before every rank knows every other one.
  COLLOPS_RETURN_IF_ERROR(SendToAll(peers, deadline));
  FieldWriter welcome = LocalMessageOf(MessageKind::kWelcome);
  welcome.Number(static_cast<uint64_t>(segment_.bytes));
  std::vector<int> shared = {group->segment.fd()};
  if (doorbell_) shared.push_back(group->doorbell.get());
  return SendToAll({{welcome.frame(), shared}}, deadline);
}

Status MeetingLeader::SendToAll(const std::vector<Message>& messages, const Deadline& deadline) {
  for (Client& client : clients_) {
    if (client.rank <= 0) continue;
    for (size_t next = 0; next < messages.size();) {
      if (client.connection.Send(messages[next].frame, messages[next].descriptors)) {
        ++next;
        continue;
      }
      COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));  // takes the reason that it sent before it went
      TellWaitingFor(
          Concat("rank ", client.rank, " of ", spec_.rank_size, ", which has made no call"));
      COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "rank ", client.rank,
                        " made no call in ", deadline.timeout_s(), " s: first contact of ",
                        Describe());
      COLLOPS_RETURN_IF_ERROR(CheckWanted());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return Ok();
}

// After a failure the leader answers for a moment longer, so that late ranks get the reason, too.
void MeetingLeader::AnswerLateRanks(const Status& reason) {
  const Deadline deadline = Deadline::After(kLateS);
  // No rank is introduced any more, and accepting a client takes a descriptor.
  spare_.reset();
  informed_ = left_;
  informed_.Add(0);
  while (listener_.valid() && !informed_.all() && !deadline.Passed() && Wanted()) {
    static_cast<void>(AcceptClients());
    for (Client& client : clients_) SendReason(&client, reason);
    AwaitReady({{listener_.get(), POLLIN, 0}});
  }
  // Clients that are still connecting see the socket close without a verdict, and try again.
  listener_.reset();
  clients_.clear();
}

// Sends a client the reason, once its hello has arrived; its descriptors are dropped, for which
// there may be no room.
void MeetingLeader::SendReason(Client* client, const Status& reason) {
  Frame frame;
  if (!client->greeted && client->connection.Receive(&frame)) {
    static_cast<void>(ReadHello(client, frame));
  }
  if (!client->connection.alive() || !client->greeted) return;
  // A client that was told before wants a new meeting: it waits until this leader closes.
  const Origin& origin = client->hello.origin;
  const auto is_informed = [&origin](const Origin& informed) {
    return informed.maker == origin.maker && informed.made < origin.made;
  };
  if (std::any_of(informed_makers_.begin(), informed_makers_.end(), is_informed)) return;
  informed_makers_.push_back({origin.maker, Origin::Clock::now()});
  static_cast<void>(client->connection.Send(LocalVerdictFrame(reason)));
  client->connection = Connection();
  const int rank = client->hello.rank;
  if (rank > 0 && rank < spec_.rank_size) informed_.Add(rank);
}

void MeetingLeader::Cancel(const Status& reason) {
  if (listener_.valid()) static_cast<void>(AcceptClients());
  // Clients of groups of another size wait for another leader; their hello may not have arrived.
  const Frame verdict = LocalVerdictFrame(reason, spec_.rank_size);
  for (Client& client : clients_) static_cast<void>(client.connection.Send(verdict));
  listener_.reset();
  spare_.reset();
  clients_.clear();
}

}  // namespace collops::control

#include "collops/comm/control/bootstrap/messages.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <random>

#include "collops/comm/rank_set.h"

namespace collops::control {
namespace {

constexpr size_t kFixedBytes = offsetof(MeetingMessage, text);

// 0: not drawn yet; a child of fork() draws its own.
std::atomic<uint64_t> process_number{0};

[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { process_number.store(0); });

uint64_t DrawNumber() {
  std::random_device device;
  return uint64_t{device()} << 32 | device() | 1;
}

uint64_t ProcessNumber() {
  uint64_t number = process_number.load();
  if (number != 0) return number;
  const uint64_t drawn = DrawNumber();
  return process_number.compare_exchange_strong(number, drawn) ? drawn : number;
}

}  // namespace

Origin MakeOrigin(CommMode mode) {
  Origin origin;
  origin.maker = ProcessNumber();
  if (mode != COMM_MULTI_THREAD) return origin;
  thread_local const uint64_t thread_number = DrawNumber();
  origin.maker ^= thread_number;
  origin.made = Origin::Clock::now();
  return origin;
}

// Sends only the used part of the text: a socket's buffer holds few full messages.
Transfer SendMessage(int socket, const MeetingMessage& message, const std::vector<int>& fds) {
  return Send(socket, &message, kFixedBytes + std::strlen(message.text) + 1, fds);
}

void SendVerdict(int socket, const Status& reason, int rank_size) {
  MeetingMessage message;
  message.type = MessageType::kVerdict;
  message.code = reason.code();
  message.rank_size = rank_size;
  reason.message().copy(message.text, sizeof(message.text) - 1);
  (void)SendMessage(socket, message, {});
}

Status VerdictOf(const MeetingMessage& message) {
  if (message.type != MessageType::kVerdict) {
    return Error(ERROR_PEER_LOST, "it sent a message of type ", static_cast<int>(message.type),
                 ", which is invalid");
  }
  return Status(FailureCode(message.code), message.text);
}

Status VerdictInMailbox(int mailbox) {
  MeetingMessage message;
  const ssize_t received = recv(mailbox, &message, sizeof(message), MSG_PEEK | MSG_DONTWAIT);
  const bool ours =
      received > static_cast<ssize_t>(kFixedBytes) && message.magic == MeetingMessage::kMagic &&
      message.version == MeetingMessage::kVersion && message.type == MessageType::kVerdict;
  message.text[sizeof(message.text) - 1] = '\0';
  return ours ? VerdictOf(message) : Ok();
}

Transfer ReceiveMessage(int socket, MeetingMessage* message, std::vector<UniqueFd>* fds) {
  size_t received = 0;
  const Transfer transfer = Receive(socket, message, sizeof(*message), &received, fds);
  if (transfer == Transfer::kWouldBlock || transfer == Transfer::kClosed) return transfer;
  constexpr size_t kVersionEnd = offsetof(MeetingMessage, version) + sizeof(message->version);
  if (received < kVersionEnd || message->magic != MeetingMessage::kMagic) return Transfer::kClosed;
  if (message->version != MeetingMessage::kVersion) {
    *message = {};
    message->type = MessageType::kOtherVersion;
    return transfer;
  }
  message->text[sizeof(message->text) - 1] = '\0';
  const bool whole = received > kFixedBytes && message->type != MessageType::kOtherVersion;
  return whole ? transfer : Transfer::kClosed;
}

Status MakeOwnPeer(CommMode mode, Peer* peer, UniqueFd* inbox) {
  peer->pid = getpid();
  UniqueFd mailbox;
  COLLOPS_RETURN_IF_ERROR(SocketPair(inbox, &mailbox));
  peer->mailbox = SharedFd::OfSocket(std::move(mailbox));
  // The rank opens the pidfd on itself, so it works where the others cannot see its pid. Without
  // pidfds (old kernels, sandboxes) only the mailbox's hang-up shows that the rank has ended. Ranks
  // that are threads need none: they end with their whole process.
  if (mode == COMM_MULTI_PROCESS) peer->lifeline = SharedFd(OpenProcess(peer->pid));
  return Ok();
}

std::vector<int> Descriptors(const Peer& peer) {
  std::vector<int> fds = {peer.mailbox.get()};
  if (peer.lifeline.valid()) fds.push_back(peer.lifeline.get());
  return fds;
}

Peer PeerFrom(const MeetingMessage& message, std::vector<UniqueFd> fds) {
  Peer peer;
  peer.pid = message.pid;
  if (!fds.empty()) peer.mailbox = SharedFd::OfSocket(std::move(fds[0]));
  if (fds.size() > 1) peer.lifeline = SharedFd(std::move(fds[1]));
  return peer;
}

std::string Describe(const CommunicatorSpec& spec, const JobIdentity& job) {
  return Concat("comm_domain \"", spec.comm_domain, "\" of job ", job.id, " (", job.source, ")");
}

std::string DescribePlace(const CommunicatorSpec& spec, const JobIdentity& job) {
  if (spec.comm_domain.empty()) return DescribeJob(job);
  return Concat("comm_domain \"", spec.comm_domain, "\" (", DescribeJob(job), ")");
}

std::string WaitingLine(const CommunicatorSpec& spec, const JobIdentity& job,
                        const std::string& whom) {
  const std::string domain =
      spec.comm_domain.empty() ? "" : Concat(" of comm_domain \"", spec.comm_domain, "\"");
  return Concat("collops: rank ", spec.rank, domain, ": waiting for ", whom, " (", DescribeJob(job),
                ")");
}

std::string RanksMissing(const std::bitset<kMaxRanks>& present, int rank_size) {
  RankSet ranks = RankSet::None(rank_size);
  for (int r = 0; r < rank_size; ++r) {
    if (present.test(static_cast<size_t>(r))) ranks.Add(r);
  }
  return collops::RanksMissing(ranks, rank_size);
}

void PollSockets(const std::vector<int>& sockets) {
  std::vector<pollfd> polled;
  polled.reserve(sockets.size());
  for (const int socket : sockets) polled.push_back({socket, POLLIN, 0});
  (void)poll(polled.data(), polled.size(), kMeetingPollMs);
}

}  // namespace collops::control

#include "collops/comm/control/first_contact/local_messages.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>

#include "collops/comm/control/board.h"
#include "collops/comm/rank_set.h"

namespace collops::control {
namespace {

constexpr size_t kMaxFds = 4;

int TypeOf(Carries carries) {
  const int type = carries == Carries::kMessages ? SOCK_SEQPACKET : SOCK_STREAM;
  return type | SOCK_CLOEXEC | SOCK_NONBLOCK;
}

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address->sun_path) - 1);
  std::memcpy(address->sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

constexpr size_t kFixedBytes = offsetof(MeetingMessage, text);

// 0: not drawn yet; a child of fork() draws its own.
std::atomic<uint64_t> process_number{0};

[[maybe_unused]] const int draws_after_fork =
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

UniqueFd Listen(const std::string& name, Carries carries) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  UniqueFd socket(::socket(AF_UNIX, TypeOf(carries), 0));
  if (!socket.valid() || bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket.get(), kMaxRanks) != 0) {
    return UniqueFd();
  }
  return socket;
}

bool IsTaken(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  const UniqueFd socket(::socket(AF_UNIX, TypeOf(Carries::kMessages), 0));
  return socket.valid() && bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 &&
         errno == EADDRINUSE;
}

UniqueFd ConnectTo(const std::string& name, Carries carries) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  UniqueFd socket(::socket(AF_UNIX, TypeOf(carries), 0));
  if (!socket.valid() ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    return UniqueFd();
  }
  return socket;
}

UniqueFd Accept(const UniqueFd& listener) {
  return UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Status SocketPair(UniqueFd* first, UniqueFd* second) {
  int ends[2];
  COLLOPS_CHECK_ARG(socketpair(AF_UNIX, TypeOf(Carries::kMessages), 0, ends) == 0, ERROR_RT_FAIL,
                    "cannot make a socket pair: ", std::strerror(errno));
  *first = UniqueFd(ends[0]);
  *second = UniqueFd(ends[1]);
  return Ok();
}

bool SameUser(const UniqueFd& socket, pid_t* pid, uid_t* uid) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return false;
  *pid = credentials.pid;
  *uid = credentials.uid;
  return credentials.uid == geteuid();
}

UniqueFd OpenProcess(pid_t pid) {
  return UniqueFd(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
}

bool Readable(int fd) {
  pollfd polled{fd, POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

bool OutOfDescriptors() {
  return errno == EMFILE || errno == ENFILE;
}

Status TooManyFiles() {
  return Error(ERROR_RT_FAIL, "this process has too many open files: raise the limit (ulimit -n)");
}

SocketResult Send(int socket, const void* data, size_t bytes, const std::vector<int>& fds) {
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return SocketResult::kDone;
  // ETOOMANYREFS: too many descriptors are in flight; there is room once the receivers take them.
  const bool later = errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ETOOMANYREFS;
  return later ? SocketResult::kWouldBlock : SocketResult::kClosed;
}

SocketResult Receive(int socket, void* data, size_t bytes, size_t* received,
                     std::vector<UniqueFd>* fds) {
  iovec part{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  // Reported once when the peer closed with mail unread; its earlier messages can still be read.
  if (count < 0 && errno == ECONNRESET) {
    count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  }
  if (count < 0) {
    return errno == EAGAIN || errno == EINTR ? SocketResult::kWouldBlock : SocketResult::kClosed;
  }
  fds->clear();
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t num_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < num_fds; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      fds->emplace_back(fd);
    }
  }
  *received = static_cast<size_t>(count);
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return fds->size() < kMaxFds ? SocketResult::kNoDescriptors : SocketResult::kClosed;
  }
  return count == 0 ? SocketResult::kClosed : SocketResult::kDone;
}

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
SocketResult SendMessage(int socket, const MeetingMessage& message, const std::vector<int>& fds) {
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

SocketResult ReceiveMessage(int socket, MeetingMessage* message, std::vector<UniqueFd>* fds) {
  size_t received = 0;
  const SocketResult result = Receive(socket, message, sizeof(*message), &received, fds);
  if (result == SocketResult::kWouldBlock || result == SocketResult::kClosed) return result;
  constexpr size_t kVersionEnd = offsetof(MeetingMessage, version) + sizeof(message->version);
  if (received < kVersionEnd || message->magic != MeetingMessage::kMagic)
    return SocketResult::kClosed;
  if (message->version != MeetingMessage::kVersion) {
    *message = {};
    message->type = MessageType::kOtherVersion;
    return result;
  }
  message->text[sizeof(message->text) - 1] = '\0';
  const bool whole = received > kFixedBytes && message->type != MessageType::kOtherVersion;
  return whole ? result : SocketResult::kClosed;
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

std::string Describe(const GroupSpec& spec, const JobIdentity& job) {
  return Concat("comm_domain \"", spec.comm_domain, "\" of job ", job.id, " (", job.source, ")");
}

std::string DescribePlace(const GroupSpec& spec, const JobIdentity& job) {
  if (spec.comm_domain.empty()) return DescribeJob(job);
  return Concat("comm_domain \"", spec.comm_domain, "\" (", DescribeJob(job), ")");
}

std::string WaitingLine(const GroupSpec& spec, const JobIdentity& job, const std::string& whom) {
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

#include "collops/comm/control/first_contact/local_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "collops/comm/control/board.h"

namespace collops::control {
namespace {

constexpr size_t kMaxFds = 4;

constexpr int kPacketType = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK;

socklen_t AbstractAddress(const std::string& name, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  const size_t length = std::min(name.size(), sizeof(address->sun_path) - 1);
  std::memcpy(address->sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

}  // namespace

UniqueFd Listen(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  UniqueFd socket(::socket(AF_UNIX, kPacketType, 0));
  if (!socket.valid() || bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(socket.get(), kMaxRanks) != 0) {
    return UniqueFd();
  }
  return socket;
}

bool IsTaken(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  const UniqueFd socket(::socket(AF_UNIX, kPacketType, 0));
  return socket.valid() && bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 &&
         errno == EADDRINUSE;
}

UniqueFd ConnectTo(const std::string& name) {
  sockaddr_un address;
  const socklen_t length = AbstractAddress(name, &address);
  UniqueFd socket(::socket(AF_UNIX, kPacketType, 0));
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
  COLLOPS_CHECK_ARG(socketpair(AF_UNIX, kPacketType, 0, ends) == 0, ERROR_RT_FAIL,
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

}  // namespace collops::control

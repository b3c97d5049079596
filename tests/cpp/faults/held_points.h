// Points at which a rank can be held: before and after each call of the system that the library
// makes in a phase of a job. This program's own functions stand before libc's, count the calls, and
// at the chosen one wait for ever. Include it in one file of a program.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "sanitized.h"

namespace held {

enum Phase { kStart, kFirstContact, kCalls, kWindows, kSplit, kMessages, kClose, kEnd, kNumPhases };
constexpr const char* kPhaseNames[] = {"start", "first contact", "calls", "windows",
                                       "Split", "messages",      "close", "end"};

enum Function {
  kSocket,
  kBind,
  kListen,
  kConnect,
  kAccept,
  kSocketPair,
  kSendmsg,
  kRecvmsg,
  kMemfd,
  kFallocate,
  kMmap,
  kMunmap,
  kCloseFd,
  kNumFunctions
};
constexpr const char* kFunctionNames[] = {
    "socket",  "bind",         "listen",          "connect", "accept4", "socketpair", "sendmsg",
    "recvmsg", "memfd_create", "posix_fallocate", "mmap",    "munmap",  "close"};

constexpr int kMostRanks = 4;

// What the ranks of a job and the test share.
struct Board {
  std::atomic<int> phase[kMostRanks];
  std::atomic<int> calls[kMostRanks][kNumPhases][kNumFunctions];
  std::atomic<int> held;
  std::atomic<int> met;  // ranks that have completed first contact
};

// The point of this process; phase -1: it is never held.
struct Point {
  int phase = -1;
  int function = 0;
  int number = 0;  // the first is 1
  bool after = false;
};

struct State {
  Board* board = nullptr;
  int rank = 0;
  Point point;
};
inline State& Mine() {
  static State state;
  return state;
}

inline void Enter(Phase phase) {
  Mine().board->phase[Mine().rank] = phase;
}

[[noreturn]] inline void Hold() {
  Mine().board->held = 1;
  for (;;) pause();
}

// Around one call of the system.
class Call {
 public:
  explicit Call(Function function) {
    State& mine = Mine();
    if (mine.board == nullptr) return;
    const int phase = mine.board->phase[mine.rank];
    const int number = ++mine.board->calls[mine.rank][phase][function];
    const Point& point = mine.point;
    chosen_ = phase == point.phase && function == point.function && number == point.number;
    if (chosen_ && !point.after) Hold();
  }
  ~Call() {
    if (chosen_) Hold();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  bool chosen_ = false;
};

template <typename... Arguments>
long Make(Function function, long number, Arguments... arguments) {
  const Call call(function);
  return syscall(number, arguments...);
}

}  // namespace held

#ifndef COLLOPS_SANITIZED
extern "C" {
int socket(int domain, int type, int protocol) noexcept {
  return static_cast<int>(held::Make(held::kSocket, SYS_socket, domain, type, protocol));
}
int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  return static_cast<int>(held::Make(held::kBind, SYS_bind, fd, address, length));
}
int listen(int fd, int backlog) noexcept {
  return static_cast<int>(held::Make(held::kListen, SYS_listen, fd, backlog));
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  return static_cast<int>(held::Make(held::kConnect, SYS_connect, fd, address, length));
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  return static_cast<int>(held::Make(held::kAccept, SYS_accept4, fd, address, length, flags));
}
int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  return static_cast<int>(
      held::Make(held::kSocketPair, SYS_socketpair, domain, type, protocol, ends));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return held::Make(held::kSendmsg, SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return held::Make(held::kRecvmsg, SYS_recvmsg, fd, message, flags);
}
int memfd_create(const char* name, unsigned int flags) noexcept {
  return static_cast<int>(held::Make(held::kMemfd, SYS_memfd_create, name, flags));
}
int posix_fallocate(int fd, off_t begin, off_t bytes) {
  return held::Make(held::kFallocate, SYS_fallocate, fd, 0, begin, bytes) == 0 ? 0 : errno;
}
void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t begin) noexcept {
  return reinterpret_cast<void*>(
      held::Make(held::kMmap, SYS_mmap, at, bytes, protection, flags, fd, begin));
}
int munmap(void* at, size_t bytes) noexcept {
  return static_cast<int>(held::Make(held::kMunmap, SYS_munmap, at, bytes));
}
int close(int fd) {
  return static_cast<int>(held::Make(held::kCloseFd, SYS_close, fd));
}
}
#endif

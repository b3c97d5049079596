#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/control/bootstrap/unique_fd.h"
#include "core/status.h"

namespace collops::control {

// Sockets of first contact: sequenced packets, so a message arrives whole, with the descriptors
// that travel in it. Nothing here waits: every socket is non-blocking.

// Makes a listening socket with a name in the abstract namespace, which vanishes with its owner.
// Not valid when somebody else listens there.
UniqueFd Listen(const std::string& name);

// Whether a process has a socket of that name, also one on which it does not listen.
bool IsTaken(const std::string& name);

// Not valid when nobody listens there yet.
UniqueFd ConnectTo(const std::string& name);

// Not valid when nobody is waiting to be accepted.
UniqueFd Accept(const UniqueFd& listener);

// Two connected ends.
Status SocketPair(UniqueFd* first, UniqueFd* second);

// The process at the other end, and its user; false unless that is ours.
bool SameUser(const UniqueFd& socket, pid_t* pid, uid_t* uid);

// A pidfd, which turns readable when the process ends; not valid where the pid is not visible.
UniqueFd OpenProcess(pid_t pid);
bool Readable(int fd);

// kNoDescriptors: a message came, but this process may open no more files for what was in it.
// kClosed also stands for a message with more descriptors than any of ours has.
enum class Transfer { kDone, kWouldBlock, kClosed, kNoDescriptors };

// Whether the call that just failed had no descriptor left, and what the user can do about it.
bool OutOfDescriptors();
Status TooManyFiles();

// Sends `bytes` of `data` and the descriptors. kWouldBlock: try again later, nothing was sent.
Transfer Send(int socket, const void* data, size_t bytes, const std::vector<int>& fds);

// Receives one message of at most `bytes`; `received` says how many came.
Transfer Receive(int socket, void* data, size_t bytes, size_t* received,
                 std::vector<UniqueFd>* fds);

}  // namespace collops::control

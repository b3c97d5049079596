#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/core/status.h"

namespace collops::control {

// Sockets within a host. Each carries packets, which arrive whole, with their descriptors. No
// function here waits: every socket is non-blocking.

// A listening socket with a name in the abstract namespace, which ends with its process. Not valid
// if another socket listens under that name.
UniqueFd Listen(const std::string& name);

// Whether a socket has that name, also one that does not listen.
bool IsTaken(const std::string& name);

// Not valid if no socket listens there yet.
UniqueFd ConnectTo(const std::string& name);

// Not valid if no client waits to be accepted.
UniqueFd Accept(const UniqueFd& listener);

// Two connected sockets.
Status SocketPair(UniqueFd* first, UniqueFd* second);

// The process at the other end, and its user; false unless that user runs this process, too.
bool SameUser(const UniqueFd& socket, pid_t* pid, uid_t* uid);

// A pidfd, readable when the process has ended; not valid if the pid is not visible here.
UniqueFd OpenProcess(pid_t pid);
bool Readable(int fd);

// kNoDescriptors: a message arrived, but this process may not open its descriptors. kClosed also
// means a message with more descriptors than this library ever sends.
enum class SocketResult { kDone, kWouldBlock, kClosed, kNoDescriptors };

// Whether the last call failed because no descriptor was left; TooManyFiles() says what to do.
bool OutOfDescriptors();
Status TooManyFiles();

// Sends `bytes` of `data` and the descriptors. kWouldBlock: nothing was sent, try again later.
SocketResult Send(int socket, const void* data, size_t bytes, const std::vector<int>& fds);

// Receives one message of at most `bytes`; `received` is its size.
SocketResult Receive(int socket, void* data, size_t bytes, size_t* received,
                     std::vector<UniqueFd>* fds);

}  // namespace collops::control

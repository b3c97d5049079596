#pragma once

#include <memory>

#include "collops/comm/control/bootstrap/unique_fd.h"

namespace collops::control {

// A file descriptor that several owners of one process share; closed with the last of them.
class SharedFd {
 public:
  SharedFd() = default;
  explicit SharedFd(UniqueFd fd) : fd_(std::make_shared<UniqueFd>(std::move(fd))) {}
  // A descriptor of a socket: another one of the same socket that this process already shares takes
  // its place, and it is closed. So ranks that are threads have one descriptor of each mailbox.
  static SharedFd OfSocket(UniqueFd socket);

  int get() const { return fd_ == nullptr ? -1 : fd_->get(); }
  bool valid() const { return get() >= 0; }
  void reset() { fd_.reset(); }

 private:
  std::shared_ptr<UniqueFd> fd_;
};

}  // namespace collops::control

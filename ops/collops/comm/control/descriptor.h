#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace collops::control {

// Owns one file descriptor and closes it; -1 means none. A child of fork() closes its copies at
// once: they would keep the parent's sockets open after the parent has ended.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd);
  UniqueFd(UniqueFd&& other) noexcept { *this = std::move(other); }
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(fork_generation_, other.fork_generation_);
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
  uint64_t fork_generation_ = 0;
};

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

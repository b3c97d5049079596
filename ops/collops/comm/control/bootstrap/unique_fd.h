#pragma once

#include <cstdint>
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

}  // namespace collops::control

#include "collops/comm/control/bootstrap/unique_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

#include "collops/core/process/fork_generation.h"

namespace collops::control {
namespace {

// Which descriptors are owned, one bit each: a table that a child of fork() can walk without a
// lock. Numbers beyond the table are closed by their owner alone.
constexpr int kMaxTracked = 1 << 16;
constexpr int kBits = 64;
std::atomic<uint64_t> owned[kMaxTracked / kBits];

void Track(int fd, bool is_owned) {
  if (fd < 0 || fd >= kMaxTracked) return;
  const uint64_t bit = uint64_t{1} << (fd % kBits);
  std::atomic<uint64_t>& word = owned[fd / kBits];
  if (is_owned) {
    word.fetch_or(bit, std::memory_order_relaxed);
  } else {
    word.fetch_and(~bit, std::memory_order_relaxed);
  }
}

void CloseInherited() {
  for (int i = 0; i < kMaxTracked / kBits; ++i) {
    const uint64_t word = owned[i].exchange(0, std::memory_order_relaxed);
    for (int bit = 0; word != 0 && bit < kBits; ++bit) {
      if ((word >> bit & 1) != 0) ::close(i * kBits + bit);
    }
  }
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, CloseInherited);

}  // namespace

UniqueFd::UniqueFd(int fd) : fd_(fd), fork_generation_(ForkGeneration()) {
  Track(fd, true);
}

void UniqueFd::reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0 || fork_generation_ != ForkGeneration()) return;
  Track(fd, false);
  ::close(fd);
}

}  // namespace collops::control

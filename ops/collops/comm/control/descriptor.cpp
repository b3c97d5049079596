#include "collops/comm/control/descriptor.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "collops/core/process/fork_generation.h"
#include "collops/core/process/per_process.h"

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

[[maybe_unused]] const int closes_after_fork = pthread_atfork(nullptr, nullptr, CloseInherited);

// The sockets that this process shares, by inode.
struct Sockets {
  std::mutex mutex;
  std::map<ino_t, std::weak_ptr<UniqueFd>> by_inode;
};
PerProcess<Sockets> sockets;

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

SharedFd SharedFd::OfSocket(UniqueFd socket) {
  struct stat info = {};
  if (!socket.valid() || fstat(socket.get(), &info) != 0) return SharedFd(std::move(socket));
  SharedFd shared;
  Sockets& all = sockets.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::weak_ptr<UniqueFd>& known = all.by_inode[info.st_ino];
  shared.fd_ = known.lock();
  if (shared.fd_ != nullptr) return shared;
  for (auto it = all.by_inode.begin(); it != all.by_inode.end();) {
    it = it->second.expired() && it->first != info.st_ino ? all.by_inode.erase(it) : std::next(it);
  }
  shared.fd_ = std::make_shared<UniqueFd>(std::move(socket));
  known = shared.fd_;
  return shared;
}

}  // namespace collops::control

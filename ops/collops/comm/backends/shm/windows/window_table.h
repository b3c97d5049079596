#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/control/segment.h"
#include "collops/comm/window.h"
#include "collops/core/process/fork_generation.h"
#include "collops/core/status.h"

namespace collops::shm {

// Where an input lies in one of this rank's windows.
struct WindowSpot {
  uint32_t id = 0;
  int64_t offset = 0;
};

// The windows of one rank, which `peers` can address. Any thread may free a window at any time; its
// destructor removes it here, so windows share the table. Thread-safe; waits for no one.
class WindowTable : public std::enable_shared_from_this<WindowTable> {
 public:
  explicit WindowTable(RankSet peers) : peers_(std::move(peers)) {}

  const RankSet& peers() const { return peers_; }
  // Who uses a window: the library, or the caller of a communicator.
  enum class User { kLibrary, kCaller };
  Status Allocate(int64_t bytes, std::shared_ptr<Window>* window, User user = User::kLibrary);
  // Whether a caller still has a window.
  bool HasCallers() const;

  // Whether [data, data + bytes) lies in a window.
  bool Find(const void* data, int64_t bytes, WindowSpot* spot) const;
  // The address of a range of a window; null if there is no such window or range.
  const std::byte* Address(const WindowSpot& spot, int64_t bytes) const;

  // What the peers do not know yet and must know before a call that uses window `id` (0: none): the
  // window itself, and freed windows to unmap. Returned once each.
  bool HasNews(uint32_t id) const {
    return num_news_.load(std::memory_order_relaxed) != 0 && FindNews(id);
  }
  struct News {
    bool announce = false;
    int fd = -1;
    int64_t bytes = 0;
    std::vector<uint32_t> retired;
  };
  News TakeNews(uint32_t id);

 private:
  class OwnedWindow;
  struct Entry {
    uint32_t id;
    const std::byte* data;
    int64_t bytes;
    int fd;
    bool announced;
    User user;
  };

  void Remove(uint32_t id);
  bool FindNews(uint32_t id) const;

  const RankSet peers_;
  const uint64_t fork_generation_ = ForkGeneration();
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> retired_;
  uint32_t next_id_ = 1;
  // Windows that are not announced, and retired_. Another thread's window that is made or freed at
  // this moment is news for the next call, so it is read without the mutex.
  std::atomic<int> num_news_{0};
};

}  // namespace collops::shm

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/segment.h"
#include "collops/comm/control/waiter.h"
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
  bool HasUpdates(uint32_t id) const {
    return num_updates_.load(std::memory_order_relaxed) != 0 && FindUpdates(id);
  }
  struct Updates {
    bool announce = false;
    int fd = -1;
    int64_t bytes = 0;
    std::vector<uint32_t> retired;
  };
  Updates TakeUpdates(uint32_t id);

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
  bool FindUpdates(uint32_t id) const;

  const RankSet peers_;
  const uint64_t fork_generation_ = ForkGeneration();
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> retired_;
  uint32_t next_id_ = 1;
  // Windows that are not announced, and retired_. Another thread's window that is made or freed at
  // this moment is an update for the next call, so it is read without the mutex.
  std::atomic<int> num_updates_{0};
};

// Sends this rank's windows to the peers, and maps theirs. A window's descriptor is sent to every
// peer before the first signal of the first call that uses it, so a peer that sees the signal finds
// the mail; the signal says how many mails to expect. Used by both lanes: a mutex guards all but
// the two counts. Waits in Send() and Expect() only, without the mutex.
class WindowMailbox {
 public:
  // `table`: this rank's windows.
  WindowMailbox(control::Endpoint* endpoint, WindowTable* table);

  WindowTable& table() { return *table_; }
  // Sends what the peers do not know and must know to use a window of this rank (0: none); waits
  // only while a peer's mailbox is full.
  Status Send(uint32_t window_id, control::Waiter* waiter);
  // As Send() without waiting: `sent` is false if a mailbox is full; call again.
  Status TrySend(uint32_t window_id, bool* sent);
  // Mails of this rank, including those that still wait for room.
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

  uint64_t received(int rank) const {
    return received_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }
  // Reads mail until `count` mails of `rank` have arrived.
  Status Expect(int rank, uint64_t count, control::Waiter* waiter);
  // Reads the mail that has arrived.
  void Drain();

  // A peer's window; empty if there is none. It stays mapped as long as the caller has it, also if
  // the next mail says that the peer has freed it.
  control::Segment Find(int rank, uint32_t window_id) const;
  // The address of a range of a window; null if there is no such range.
  static const std::byte* Range(const control::Segment& window, int64_t offset, int64_t bytes);
  // Why this rank has not mapped a window that the peer sent; Ok if the peer sent none.
  Status WhyNotMapped(int rank, uint32_t window_id) const;

 private:
  struct Mail {
    int32_t rank = 0;
    uint32_t window_id = 0;
    int64_t bytes = 0;  // 0: the window has been freed
  };
  struct Mapped {
    control::Segment segment;
    Status status;  // of the attempt to map it
  };
  // A mail that some peers have not got yet; every peer gets all mails in one order.
  struct Outgoing {
    Mail mail;
    int fd = -1;             // the window's; owned by the table, while the caller is the only user
    control::UniqueFd kept;  // a duplicate of it, while the mail waits
    int next = 0;            // the first peer that has not got it
  };

  void Enqueue(const Mail& mail, int fd);
  Status Flush(bool* done);
  bool SendOn(Outgoing* outgoing);
  bool TakeOne();

  control::Endpoint* endpoint_;
  WindowTable* table_;
  mutable std::mutex mutex_;
  std::deque<Outgoing> outgoing_;
  std::atomic<uint64_t> sent_{0};
  // A window's descriptor could not be received because too many files are open.
  bool lost_descriptors_ = false;
  std::unique_ptr<std::atomic<uint64_t>[]> received_;
  std::vector<std::unordered_map<uint32_t, Mapped>> mapped_;
};

}  // namespace collops::shm

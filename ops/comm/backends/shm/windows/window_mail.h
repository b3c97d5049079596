#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "comm/backends/shm/windows/window_table.h"
#include "comm/control/bootstrap/unique_fd.h"
#include "comm/control/endpoint.h"
#include "comm/control/segment.h"
#include "comm/control/waiter.h"

namespace collops::shm {

// Tells the peers of this rank's windows, and keeps theirs mapped. A window's descriptor is sent to
// every peer before the first signal of the first call that uses it, so by the time a peer sees the
// signal the mail is there; the signal says how many mails to expect. Both lanes use it: a mutex
// guards all but the two counts. Waits in Send() and Expect() alone, without the mutex.
class WindowMail {
 public:
  explicit WindowMail(control::Endpoint* endpoint);

  // Sends what `table` has to tell; waits only while a peer's mailbox is full.
  Status Send(WindowTable* table, uint32_t window_id, control::Waiter* waiter);
  // The same without waiting: false in `sent` if a mailbox is full, ask again.
  Status TrySend(WindowTable* table, uint32_t window_id, bool* sent);
  // Mails of this rank, those included that still wait for room.
  uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }

  uint64_t received(int rank) const {
    return received_[static_cast<size_t>(rank)].load(std::memory_order_acquire);
  }
  // Takes mail until `count` from `rank` have come.
  Status Expect(int rank, uint64_t count, control::Waiter* waiter);
  // Takes what is there.
  void Drain();

  // The address of a range of a peer's window; null when there is no such window or range.
  const std::byte* Find(int rank, uint32_t window_id, int64_t offset, int64_t bytes) const;
  // Why this rank has not mapped a window that the peer did share; Ok where the peer has not.
  Status WhyNotMapped(int rank, uint32_t window_id) const;

 private:
  struct Mail {
    int32_t rank = 0;
    uint32_t window_id = 0;
    int64_t bytes = 0;  // 0: the window is gone
  };
  struct Mapped {
    control::Segment segment;
    Status status;  // of the attempt
  };
  // A mail that has not been sent to all; every peer gets all mails in one order.
  struct Outgoing {
    Mail mail;
    int fd = -1;  // of the window; the table's, as long as nobody but the caller has seen it
    control::UniqueFd kept;  // the same, of our own, while it waits
    int next = 0;            // the first peer that has not got it
  };

  void Enqueue(const Mail& mail, int fd);
  Status Flush(bool* done);
  bool SendOn(Outgoing* outgoing);
  bool TakeOne();

  control::Endpoint* endpoint_;
  mutable std::mutex mutex_;
  std::deque<Outgoing> outgoing_;
  std::atomic<uint64_t> sent_{0};
  // A window's descriptor could not be taken because too many files are open.
  bool lost_descriptors_ = false;
  std::unique_ptr<std::atomic<uint64_t>[]> received_;
  std::vector<std::unordered_map<uint32_t, Mapped>> mapped_;
};

}  // namespace collops::shm

#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "collops/comm/backends/shm/windows/window_table.h"
#include "collops/comm/control/bootstrap/unique_fd.h"
#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/segment.h"
#include "collops/comm/control/waiter.h"

namespace collops::shm {

// Sends this rank's windows to the peers, and maps theirs. A window's descriptor is sent to every
// peer before the first signal of the first call that uses it, so a peer that sees the signal finds
// the mail; the signal says how many mails to expect. Used by both lanes: a mutex guards all but
// the two counts. Waits in Send() and Expect() only, without the mutex.
class WindowMail {
 public:
  explicit WindowMail(control::Endpoint* endpoint);

  // Sends what the peers do not know of `table`; waits only while a peer's mailbox is full.
  Status Send(WindowTable* table, uint32_t window_id, control::Waiter* waiter);
  // As Send() without waiting: `sent` is false if a mailbox is full; call again.
  Status TrySend(WindowTable* table, uint32_t window_id, bool* sent);
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
  mutable std::mutex mutex_;
  std::deque<Outgoing> outgoing_;
  std::atomic<uint64_t> sent_{0};
  // A window's descriptor could not be received because too many files are open.
  bool lost_descriptors_ = false;
  std::unique_ptr<std::atomic<uint64_t>[]> received_;
  std::vector<std::unordered_map<uint32_t, Mapped>> mapped_;
};

}  // namespace collops::shm

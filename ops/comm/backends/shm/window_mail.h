#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/control/endpoint.h"
#include "comm/control/segment.h"
#include "comm/control/waiter.h"
#include "comm/backends/shm/window_table.h"

namespace collops::shm {

// Tells the peers of this rank's windows, and keeps theirs mapped. A window's descriptor is sent to
// every peer before the first signal of the first call that uses it, so by the time a peer sees the
// signal the mail is there; the signal says how many mails to expect. One thread at a time.
class WindowMail {
 public:
  explicit WindowMail(control::Endpoint* endpoint);

  // Sends what `table` has to tell; waits only while a peer's mailbox is full.
  Status Send(WindowTable* table, uint32_t window_id, control::Waiter* waiter);
  uint64_t sent() const { return sent_; }

  uint64_t received(int rank) const { return received_[static_cast<size_t>(rank)]; }
  // Whether a window's descriptor could not be taken because too many files are open.
  bool lost_descriptors() const { return lost_descriptors_; }
  // Takes mail until `count` from `rank` have come.
  Status Expect(int rank, uint64_t count, control::Waiter* waiter);
  // Takes what is there.
  void Drain();

  // The address of a range of a peer's window; null when there is no such window or range.
  const std::byte* Find(int rank, uint32_t window_id, int64_t offset, int64_t bytes) const;

 private:
  struct Mail {
    int32_t rank = 0;
    uint32_t window_id = 0;
    int64_t bytes = 0;  // 0: the window is gone
  };

  Status Broadcast(const Mail& mail, const std::vector<int>& fds, control::Waiter* waiter);
  bool TakeOne();

  control::Endpoint* endpoint_;
  uint64_t sent_ = 0;
  bool lost_descriptors_ = false;
  std::vector<uint64_t> received_;
  std::vector<std::unordered_map<uint32_t, control::Segment>> mapped_;
};

}  // namespace collops::shm

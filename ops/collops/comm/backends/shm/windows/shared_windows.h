#pragma once

#include <memory>

#include "collops/comm/backends/shm/pairs/pair_windows.h"
#include "collops/comm/backends/shm/windows/window_mail.h"
#include "collops/comm/backends/shm/windows/window_table.h"

namespace collops::shm {

// Gives the pair wire access to the windows of this rank and of its peers. Owned by the
// communicator; one thread at a time; waits for no one.
class SharedWindows : public PairWindows {
 public:
  SharedWindows(control::Endpoint* endpoint, WindowTable* table, WindowMail* mail)
      : endpoint_(endpoint), table_(table), mail_(mail) {}

  bool Find(const void* data, int64_t bytes, uint32_t* id, int64_t* offset) override;
  Status Announce(uint32_t id, bool* told, uint64_t* mails) override;
  Status Locate(int peer, uint32_t id, int64_t offset, int64_t bytes, uint64_t mails,
                const std::byte** data) override;
  Status Make(int64_t bytes, RingWindow* window) override;

 private:
  control::Endpoint* endpoint_;
  WindowTable* table_;
  WindowMail* mail_;
  // The window that was located last: it is mapped while the wire copies from it, although the
  // group lane may read the mail that the peer has freed it.
  control::Segment located_;
};

}  // namespace collops::shm

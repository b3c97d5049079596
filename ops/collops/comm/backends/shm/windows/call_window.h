#pragma once

#include <cstdint>
#include <memory>

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/call_window.h"

namespace collops::shm {

// The window of a fused call on shm, with its signals, some of which the backend uses. Its memory
// is reused from call to call, and grows when a call needs more. Owned by the fused call; one
// thread; waits for no one.
class ShmCallWindow final : public CallWindow {
 public:
  ShmCallWindow(Exchange* exchange, WindowTable* windows)
      : exchange_(exchange), windows_(windows) {}

  // Allocates memory for the next call, or for a later one; local.
  Status Prepare(int64_t bytes);
  Status Reserve(int64_t bytes);
  // The id that the call announces; 0: the call has no window.
  uint32_t id() const { return id_; }
  // All ranks have begun the call that was prepared.
  void AllBegun() { old_memory_.reset(); }

  std::byte* data() const override;
  Status PeerData(int rank, const std::byte** data) const override;
  bool IsFree() const override { return exchange_->step().PreviousFinished(); }
  void Signal(int index, int64_t count) override;
  int64_t Signalled(int rank, int index) const override;

 private:
  Exchange* exchange_;
  WindowTable* windows_;
  int64_t bytes_ = 0;
  uint32_t id_ = 0;
  std::shared_ptr<Window> memory_;
  bool announced_ = false;              // a call has used memory_
  std::shared_ptr<Window> old_memory_;  // peers may read it until they have begun this call
};

}  // namespace collops::shm

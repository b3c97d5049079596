#pragma once

#include <cstdint>

#include "collops/comm/rank_set.h"

namespace [[gnu::visibility("default")]] collops {

// Memory of one rank that its peers read in place, so a collective on it copies each byte once.
// Communicator::AllocateWindow makes it; all users share ownership, so it may outlive the
// communicator's Close(). Peers map it when a call first uses it.
class Window {
 public:
  Window() = default;
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  virtual ~Window() = default;

  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
  // The ranks that can address it, including its owner: Communicator::WindowPeers().
  virtual const RankSet& peers() const = 0;
};

}  // namespace collops

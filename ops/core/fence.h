#pragma once

#include <atomic>

namespace collops {

// Memory fences. TSan does not know them, so under TSan ranks are ordered by their signals only.
inline void Fence(std::memory_order order) {
#if defined(__SANITIZE_THREAD__)
  static_cast<void>(order);
#else
  std::atomic_thread_fence(order);
#endif
}

}  // namespace collops

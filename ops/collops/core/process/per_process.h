#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "collops/core/process/fork_generation.h"

namespace collops {

// One T per process, made at its first use and never destroyed. A child of fork() gets its own: at
// the fork another thread may have been changing the parent's T, and its locks stay held. For data
// of a process that has a lock; the constructor is constexpr, so that it needs no lock itself.
// Thread-safe; waits for no one.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  T& Get() {
    Kept* found = kept_.load(std::memory_order_acquire);
    while (found == nullptr || found->generation != ForkGeneration()) {
      auto fresh = std::make_unique<Kept>(found);
      if (kept_.compare_exchange_strong(found, fresh.get())) found = fresh.release();
    }
    return found->value;
  }

 private:
  struct Kept {
    explicit Kept(Kept* of_parent) : parents(of_parent) {}
    const uint64_t generation = ForkGeneration();
    Kept* const parents;  // kept, but never used
    T value;
  };

  std::atomic<Kept*> kept_{nullptr};
};

}  // namespace collops

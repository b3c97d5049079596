#include "collops/core/process/fork_generation.h"

#include <pthread.h>

#include <atomic>

namespace collops {
namespace {

std::atomic<uint64_t> generation{0};

// Registered when the library is loaded, before anything that a child could inherit is made.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint64_t ForkGeneration() {
  return generation.load(std::memory_order_relaxed);
}

}  // namespace collops

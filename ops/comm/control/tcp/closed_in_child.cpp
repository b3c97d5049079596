#include "comm/control/tcp/closed_in_child.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace collops::control::tcp {
namespace {

// No lock: at a fork, another thread could hold it. A slot has the descriptor + 1; 0 is free.
constexpr int kSlots = 256;
std::atomic<int> slots[kSlots];

void CloseAll() {
  for (std::atomic<int>& slot : slots) {
    const int taken = slot.exchange(0);
    if (taken > 0) close(taken - 1);
  }
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, CloseAll);

}  // namespace

ClosedInChild::ClosedInChild(int fd) {
  for (int i = 0; i < kSlots && slot_ < 0; ++i) {
    int expected = 0;
    if (slots[i].compare_exchange_strong(expected, fd + 1)) slot_ = i;
  }
}

ClosedInChild& ClosedInChild::operator=(ClosedInChild&& other) noexcept {
  if (this == &other) return *this;
  Release();
  slot_ = std::exchange(other.slot_, -1);
  return *this;
}

void ClosedInChild::Release() {
  if (slot_ >= 0) slots[slot_].store(0);
  slot_ = -1;
}

}  // namespace collops::control::tcp

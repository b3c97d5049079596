// What takes the place of atomics, fences and plain shared data in the programs of an Explorer,
// which must be there before they are made.
#pragma once

#include <cstdint>
#include <string>

#include "signals/explorer.h"

namespace signals {

// What takes the place of std::atomic.
template <typename T>
class Word {
 public:
  Word() : word_(Explorer::Current().AddWord()) {}
  void MayBeSetByTheEndOf(int rank) { Explorer::Current().MayEnd(rank, word_); }
  T Last() const { return static_cast<T>(Explorer::Current().Last(word_)); }
  void Initialise(T value) { Explorer::Current().Initialise(word_, value); }

  T load(std::memory_order order) const {
    return static_cast<T>(Explorer::Current().Load(word_, order));
  }
  void store(T value, std::memory_order order) {
    Explorer::Current().Store(word_, static_cast<uint64_t>(value), order);
  }
  bool compare_exchange_strong(T& expected, T value) {
    auto found = static_cast<uint64_t>(expected);
    const bool same =
        Explorer::Current().CompareExchange(word_, &found, static_cast<uint64_t>(value));
    expected = static_cast<T>(found);
    return same;
  }

 private:
  int word_;
};

struct ModelMemory {
  template <typename T>
  using Atomic = Word<T>;
  static void Fence(std::memory_order order) { Explorer::Current().Fence(order); }
};

// Plain data that ranks share.
class Plain {
 public:
  explicit Plain(const std::string& name) : cell_(Explorer::Current().AddCell(name)) {}
  void Write(uint64_t value) const { Explorer::Current().WriteCell(cell_, value); }
  uint64_t Read() const { return Explorer::Current().ReadCell(cell_); }

 private:
  int cell_;
};

}  // namespace signals

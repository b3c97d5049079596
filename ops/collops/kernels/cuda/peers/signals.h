#pragma once

#include <algorithm>
#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"

// How ranks tell each other that something is there. Every number holds the step for which it was
// written, so nothing is ever reset, and what an earlier step left behind is never taken for news.
namespace collops::cuda {

// What a block that waits for long tells the host now and then: the step, and a number that
// changes.
COLLOPS_DEVICE inline uint64_t WaitWord(uint64_t step, uint32_t count) {
  return step << 32 | count;
}

// Looks until `ready()`; false if the host ends the waits of the group meanwhile.
template <class Ready>
COLLOPS_DEVICE bool WaitUntil(const Group& group, Ready ready) {
  // The host's memory is far away: it is looked at now and then.
  constexpr uint32_t kLooks = 64;
  for (uint32_t look = 1; !ready(); ++look) {
    if (look % kLooks == 0) {
      if (LoadSignal(group.stop) != 0) return false;
      StoreSignal(group.wait, WaitWord(LoadSignal(&group.Own()->step) + 1, look / kLooks));
    }
    Pause();
  }
  return true;
}

// A word of a cell: 4 bytes of data, and 4 bytes that say for which step, never 0, as in a word
// that nobody has written. They are the same again after 2^32 - 1 steps.
COLLOPS_DEVICE inline uint64_t CellWord(uint64_t step, uint32_t data) {
  return (step % 0xffffffffu + 1) << 32 | data;
}
COLLOPS_DEVICE inline bool IsOfStep(uint64_t word, uint64_t step) {
  return word >> 32 == step % 0xffffffffu + 1;
}

// What the head of a cell tells: the terms of the call, which must agree, and where its writer has
// the data for the cell's owner, if addresses are common. A number is two words.
struct Head {
  uint64_t digest;
  uint64_t balance;
  uint64_t address;
};
inline constexpr int kHeadHalves = 6;

COLLOPS_DEVICE inline void StoreHead(uint64_t* cell, uint64_t step, const Head& head) {
  const uint64_t numbers[] = {head.digest, head.balance, head.address};
  for (int i = 0; i < kHeadHalves; ++i) {
    StoreSignal(cell + i, CellWord(step, static_cast<uint32_t>(numbers[i / 2] >> i % 2 * 32)));
  }
}

// All words are looked at at once.
COLLOPS_DEVICE inline bool WaitForHead(const Group& group, const uint64_t* cell, uint64_t step,
                                       Head* head) {
  uint64_t words[kHeadHalves];
  const auto is_here = [&] {
    for (int i = 0; i < kHeadHalves; ++i) words[i] = LoadSignal(cell + i);
    bool all = true;
    for (int i = 0; i < kHeadHalves; ++i) all &= IsOfStep(words[i], step);
    return all;
  };
  if (!WaitUntil(group, is_here)) return false;
  const auto number = [&](int i) { return (words[i] & 0xffffffffu) | words[i + 1] << 32; };
  *head = {number(0), number(2), number(4)};
  return true;
}

// A count of pieces in a step. A later one is larger, in 2^47 steps.
inline constexpr int64_t kMostPieces = 1 << 16;
COLLOPS_DEVICE inline uint64_t StagedCount(uint64_t step, int64_t pieces) {
  return step << 16 | static_cast<uint64_t>(pieces);
}
COLLOPS_DEVICE inline bool WaitForCount(const Group& group, const uint64_t* count,
                                        uint64_t wanted) {
  return WaitUntil(group, [&] { return static_cast<int64_t>(LoadSignal(count) - wanted) >= 0; });
}

// Short messages, which go through cells. A message is cut in ranges, which the workers take in
// turn, on both sides alike: a worker waits for what the peers' worker of its own number writes.
// The words of all messages in a range are one row of words for its threads.
//
// The bytes of a word of a message, which may lie at any address; the last word may have fewer than
// 4.
COLLOPS_DEVICE inline uint32_t LoadWord(const char* from, int64_t bytes) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(from) % 4 == 0) return Load<uint32_t>(from);
  uint32_t word = 0;
  COLLOPS_ROLLED
  for (int64_t i = 0; i < 4 && i < bytes; ++i) {
    word |= static_cast<uint32_t>(Load<uint8_t>(from + i)) << 8 * i;
  }
  return word;
}
COLLOPS_DEVICE inline void StoreWord(char* to, int64_t bytes, uint32_t word) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(to) % 4 == 0) return Store(to, word);
  COLLOPS_ROLLED
  for (int64_t i = 0; i < 4 && i < bytes; ++i) {
    Store(to + i, static_cast<uint8_t>(word >> 8 * i));
  }
}

// A word of a message to or from a peer.
struct WordPlace {
  int32_t peer;  // -1: there is none
  int32_t at;    // bytes into the message
  int32_t bytes;
};

// The messages of a call in one direction, as the host has found them.
struct Messages {
  int32_t longest;  // its bytes
  int32_t
      equal_bytes;  // of each one; -1: not all are equally long, or some are too long for a cell

  COLLOPS_DEVICE int32_t ranges() const {
    constexpr auto kRange = static_cast<int32_t>(kMessageRange);
    return (longest + kRange - 1) / kRange;
  }
};

template <class BytesOf>
Messages FindMessages(int32_t rank, int32_t size, BytesOf bytes_of) {
  Messages found = {0, -1};
  bool are_equal = size > 1;
  const int64_t first = size > 1 ? bytes_of(rank == 0 ? 1 : 0) : 0;
  for (int32_t peer = 0; peer < size; ++peer) {
    // A rank that is alone takes its own part by ranges, too.
    if (peer == rank && size > 1) continue;
    const int64_t bytes = bytes_of(peer);
    are_equal = are_equal && bytes == first && IsInline(bytes);
    if (IsInline(bytes)) found.longest = std::max(found.longest, static_cast<int32_t>(bytes));
  }
  if (are_equal) found.equal_bytes = static_cast<int32_t>(first);
  return found;
}

// Goes through the words of one thread: every so many of the row of a range.
class WordCursor {
 public:
  COLLOPS_DEVICE WordCursor(const Group& group, const Messages& messages, int64_t range,
                            uint32_t thread, uint32_t threads)
      : rank_(group.rank),
        size_(group.size),
        equal_bytes_(messages.equal_bytes),
        range_at_(static_cast<int32_t>(range * kMessageRange)),
        threads_(static_cast<int32_t>(threads)),
        index_(static_cast<int32_t>(thread)) {}

  // bytes_of(peer): of the message; what is too long for a cell is none.
  template <class BytesOf>
  COLLOPS_DEVICE WordPlace Next(BytesOf bytes_of) {
    if (equal_bytes_ >= 0) return NextOfEqual();
    COLLOPS_ROLLED
    for (; turn_ < size_; ++turn_) {
      const int64_t all = bytes_of(Peer());
      const int32_t left = IsInline(all) ? static_cast<int32_t>(all) - range_at_ : 0;
      const int32_t words = WordsOf(left);
      if (index_ < words) return Take(index_, left);
      index_ -= words;
    }
    return {-1, 0, 0};
  }

 private:
  // Without a walk over the peers.
  COLLOPS_DEVICE WordPlace NextOfEqual() {
    const int32_t left = equal_bytes_ - range_at_;
    const int32_t words = WordsOf(left);
    if (index_ >= words * (size_ - 1)) return {-1, 0, 0};
    turn_ = 1 + index_ / words;
    return Take(index_ % words, left);
  }
  COLLOPS_DEVICE WordPlace Take(int32_t word, int32_t left) {
    index_ += threads_;
    return {Peer(), range_at_ + word * 4, left - word * 4};
  }
  COLLOPS_DEVICE int32_t Peer() const {
    return rank_ + turn_ < size_ ? rank_ + turn_ : rank_ + turn_ - size_;
  }
  static COLLOPS_DEVICE int32_t WordsOf(int32_t left) {
    constexpr auto kMost = static_cast<int32_t>(kMessageRange);
    return left <= 0 ? 0 : ((left < kMost ? left : kMost) + 3) / 4;
  }

  int32_t rank_;
  int32_t size_;
  int32_t equal_bytes_;
  int32_t range_at_;
  int32_t threads_;
  int32_t index_;
  int32_t turn_ = 1;
};

// The messages of this rank, into the cells of their receivers: message(peer) is where one begins.
template <class Block, class BytesOf, class MessageOf>
COLLOPS_DEVICE void StoreMessages(const Group& group, const Messages& messages, uint64_t step,
                                  uint32_t worker, Block& block, BytesOf bytes_of,
                                  MessageOf message) {
  constexpr int kAhead = 4;
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t range = worker; range < messages.ranges(); range += group.num_workers) {
      WordCursor cursor(group, messages, range, thread, block.threads());
      WordPlace places[kAhead];
      do {
        uint32_t words[kAhead] = {};
        for (int k = 0; k < kAhead; ++k) {
          places[k] = cursor.Next(bytes_of);
          if (places[k].peer < 0) continue;
          words[k] = LoadWord(message(places[k].peer) + places[k].at, places[k].bytes);
        }
        for (int k = 0; k < kAhead; ++k) {
          if (places[k].peer < 0) continue;
          uint64_t* const cell = group.Cell(step, places[k].peer, group.rank);
          StoreSignal(cell + kHeadWords + places[k].at / 4, CellWord(step, words[k]));
        }
      } while (places[kAhead - 1].peer >= 0);
    }
  });
}

// Waits for the messages in the cells of this rank, and stores them at to(peer); false if the wait
// was ended.
template <class Block, class BytesOf, class PlaceOf>
COLLOPS_DEVICE bool TakeMessages(const Group& group, const Messages& messages, uint64_t step,
                                 uint32_t worker, Block& block, BytesOf bytes_of, PlaceOf to) {
  constexpr int kAhead = 4;
  if (static_cast<int64_t>(worker) >= messages.ranges()) return true;
  return block.All([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t range = worker; range < messages.ranges(); range += group.num_workers) {
      WordCursor cursor(group, messages, range, thread, block.threads());
      WordPlace places[kAhead];
      do {
        const uint64_t* cells[kAhead] = {};
        uint64_t words[kAhead] = {};
        for (int k = 0; k < kAhead; ++k) {
          places[k] = cursor.Next(bytes_of);
          if (places[k].peer < 0) continue;
          cells[k] = group.Cell(step, group.rank, places[k].peer) + kHeadWords + places[k].at / 4;
        }
        const auto are_here = [&] {
          for (int k = 0; k < kAhead; ++k) {
            if (places[k].peer >= 0) words[k] = LoadSignal(cells[k]);
          }
          bool all = true;
          for (int k = 0; k < kAhead; ++k) all &= places[k].peer < 0 || IsOfStep(words[k], step);
          return all;
        };
        if (!WaitUntil(group, are_here)) return false;
        for (int k = 0; k < kAhead; ++k) {
          if (places[k].peer < 0) continue;
          StoreWord(to(places[k].peer) + places[k].at, places[k].bytes,
                    static_cast<uint32_t>(words[k]));
        }
      } while (places[kAhead - 1].peer >= 0);
    }
    return true;
  });
}

}  // namespace collops::cuda

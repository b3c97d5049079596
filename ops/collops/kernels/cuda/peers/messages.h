#pragma once

#include <cstdint>

#include "collops/kernels/cuda/bodies/block.h"
#include "collops/kernels/cuda/bodies/memory.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/signals.h"

// Short messages, which go through cells. A message is cut in ranges, which the workers take in
// turn, on both sides alike: a worker waits for what the peers' worker of its own number writes.
// The words of all messages in a range are one row of words for its threads.
namespace collops::cuda {

// The bytes of a word of a message, which may lie at any address; the last word may have fewer than
// 4.
COLLOPS_DEVICE inline uint32_t LoadWord(const char* from, int64_t bytes) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(from) % 4 == 0) return Load<uint32_t>(from);
  uint32_t word = 0;
  for (int64_t i = 0; i < 4 && i < bytes; ++i) {
    word |= static_cast<uint32_t>(Load<uint8_t>(from + i)) << 8 * i;
  }
  return word;
}
COLLOPS_DEVICE inline void StoreWord(char* to, int64_t bytes, uint32_t word) {
  if (bytes >= 4 && reinterpret_cast<uintptr_t>(to) % 4 == 0) return Store(to, word);
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

// Goes through the words of one thread: every so many of the row of a range.
class WordCursor {
 public:
  COLLOPS_DEVICE WordCursor(const Group& group, int64_t range, uint32_t thread, uint32_t threads)
      : rank_(group.rank),
        size_(group.size),
        range_at_(static_cast<int32_t>(range * kMessageRange)),
        threads_(static_cast<int32_t>(threads)),
        index_(static_cast<int32_t>(thread)) {}

  // bytes_of(peer): of the message; what is too long for a cell is none.
  template <class BytesOf>
  COLLOPS_DEVICE WordPlace Next(BytesOf bytes_of) {
    COLLOPS_ROLLED
    for (; turn_ < size_; ++turn_) {
      const int32_t peer = rank_ + turn_ < size_ ? rank_ + turn_ : rank_ + turn_ - size_;
      const int64_t all = bytes_of(peer);
      const int32_t left = IsInline(all) ? static_cast<int32_t>(all) - range_at_ : 0;
      const int32_t bytes = left < kMessageRange ? left : static_cast<int32_t>(kMessageRange);
      const int32_t words = bytes > 0 ? (bytes + 3) / 4 : 0;
      if (index_ < words) {
        const int32_t at = index_ * 4;
        index_ += threads_;
        return {peer, range_at_ + at, left - at};
      }
      index_ -= words;
    }
    return {-1, 0, 0};
  }

 private:
  int32_t rank_;
  int32_t size_;
  int32_t range_at_;
  int32_t threads_;
  int32_t index_;
  int32_t turn_ = 1;
};

// Ranges of the longest message that fits into a cell.
template <class BytesOf>
COLLOPS_DEVICE int64_t NumRanges(const Group& group, BytesOf bytes_of) {
  int64_t longest = 0;
  for (int32_t peer = 0; peer < group.size; ++peer) {
    const int64_t bytes = peer == group.rank || !IsInline(bytes_of(peer)) ? 0 : bytes_of(peer);
    longest = bytes > longest ? bytes : longest;
  }
  return (longest + kMessageRange - 1) / kMessageRange;
}

// The messages of this rank, into the cells of their receivers: message(peer) is where one begins.
template <class Block, class BytesOf, class MessageOf>
COLLOPS_DEVICE void StoreMessages(const Group& group, uint64_t step, uint32_t worker, Block& block,
                                  BytesOf bytes_of, MessageOf message) {
  constexpr int kAhead = 4;
  const int64_t ranges = NumRanges(group, bytes_of);
  block.Each([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t range = worker; range < ranges; range += group.num_workers) {
      WordCursor cursor(group, range, thread, block.threads());
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
COLLOPS_DEVICE bool TakeMessages(const Group& group, uint64_t step, uint32_t worker, Block& block,
                                 BytesOf bytes_of, PlaceOf to) {
  constexpr int kAhead = 4;
  const int64_t ranges = NumRanges(group, bytes_of);
  if (worker >= ranges) return true;
  return block.All([&](uint32_t thread) {
    COLLOPS_ROLLED
    for (int64_t range = worker; range < ranges; range += group.num_workers) {
      WordCursor cursor(group, range, thread, block.threads());
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

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/comm/backends/shm/pairs/pair_order.h"
#include "collops/core/fence.h"

namespace collops::shm {

constexpr int kPairSlots = 4;    // envelopes, and verdicts, that may be under way
constexpr int kPairChunks = 16;  // chunks of a body that may be under way
// Where a chunk lies in its ring must not change when the count of chunks wraps around.
static_assert((kPairChunks & (kPairChunks - 1)) == 0);
constexpr int64_t kPairChunkBytes = 128 << 10;
constexpr int64_t kPairRingBytes = kPairChunks * kPairChunkBytes;
constexpr int64_t kLeastPairChunkBytes = 4 << 10;
constexpr int kPairTexts = 8;           // texts of refusals per rank; the oldest is overwritten
constexpr size_t kPairTextWords = 127;  // words of 8 bytes per text

// What the sender writes of one message: its envelope, then the body or the body's place.
struct EnvelopeSlot {
  std::atomic<uint64_t> number;  // released last
  uint64_t digest;
  int64_t elements;
  uint64_t verdicts_read;
  int32_t tag;
  int16_t form;
  int16_t dtype;
  char type[24];
};
static_assert(sizeof(EnvelopeSlot) == 64);

struct VerdictSlot {
  std::atomic<uint64_t> stamp;  // count of verdicts << 2 | kind; released last
  uint64_t number;              // number of the message
  uint64_t text;                // stamp of a text of the receiver, 0: none
};

// What the receiver writes for the sender, in one line, so that the answer to a small message costs
// one line. Counts are never reset.
struct alignas(128) ReceiverLine {
  VerdictSlot verdicts[kPairSlots];
  std::atomic<uint64_t> envelopes_read;  // the slots of envelopes up to this number are free again
  std::atomic<uint64_t> chunks_read;
};
static_assert(sizeof(ReceiverLine) == 128);

// What the sender writes besides its envelopes.
struct alignas(128) SenderLine {
  std::atomic<uint64_t> verdicts_read;
  std::atomic<uint64_t> chunks_written;
  std::atomic<uint64_t> ring_mails;  // for ring_window: valid once a chunk was written
  std::atomic<uint32_t> ring_window;
};
static_assert(sizeof(SenderLine) == 128);

using TextSlot = TextSlotIn<MachineMemory, kPairTextWords>;
static_assert(sizeof(TextSlot) == 1024);

// The layout of the memory of all pair wires of `rank_size` ranks. Zeroed memory is its initial
// state. A value; points into memory that the communicator owns, aligned to 128 bytes.
class PairLayout {
 public:
  PairLayout(std::byte* base, int rank_size);

  static int64_t Bytes(int rank_size);
  // Bodies up to this size travel in the envelope.
  static int64_t InlineBytes(int rank_size);

  int64_t inline_bytes() const { return inline_bytes_; }

  ReceiverLine& receiver_line(int sender, int receiver) const;
  SenderLine& sender_line(int sender, int receiver) const;
  EnvelopeSlot& envelope(int sender, int receiver, uint64_t number) const;
  static std::byte* Inline(EnvelopeSlot* slot) {
    return reinterpret_cast<std::byte*>(slot) + sizeof(EnvelopeSlot);
  }

  // Stores a text of this rank, until kPairTexts later ones; `stamp` counts them.
  void WriteText(int rank, uint64_t stamp, const std::string& text) const;
  // A rank's text; empty if it was overwritten.
  std::string ReadText(int rank, uint64_t stamp) const;
  TextSlot& text(int rank, uint64_t stamp) const;

 private:
  std::byte* Pair(int sender, int receiver) const;

  std::byte* base_;
  int rank_size_;
  int64_t inline_bytes_;
  int64_t pair_bytes_;
};

}  // namespace collops::shm

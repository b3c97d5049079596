#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/peer_copy.h"
#include "collops/comm/backends/shm/windows.h"
#include "collops/comm/pairs/pair_wire.h"
#include "collops/core/fence.h"

// The words by which the two ends of a pair wire, or of a stage, tell each other how far they are,
// with the order of each access. The functions are templates over the memory: tests/cpp/signals
// explores them in a model of weakly ordered memory.
//
// Envelopes go from the sender to the receiver, verdicts back. The items of each kind are counted
// from 1, and item n lies in slot n % slots.
namespace collops::shm {

// Publishes a number or a count. A rank that gets it from Look() sees all that this rank has
// written before, and may write where this rank has read before.
template <typename Word>
void Publish(Word* word, uint64_t value) {
  word->store(value, std::memory_order_release);
}
template <typename Word>
uint64_t Look(const Word& word) {
  return word.load(std::memory_order_acquire);
}

// The number in a slot before item `next` is written into it.
constexpr uint64_t Before(uint64_t next, uint64_t slots) {
  return next > slots ? next - slots : 0;
}

// For the writer of the slots, which has posted `posted` items: whether the next one has a slot.
// *freed: of how many items the reader has given the slots back, as last seen in `word`.
template <typename Word>
bool HasRoom(uint64_t posted, uint64_t slots, const Word& word, uint64_t* freed) {
  if (posted - *freed < slots) return true;
  *freed = Look(word);
  return posted - *freed < slots;
}

// For the reader of envelopes: which ones it has read, and which slots the sender may use again.
template <uint64_t kSlots>
struct SlotsRead {
  uint64_t read = 0;
  uint64_t released = 0;  // the slots up to this envelope are given back
  uint32_t held = 0;      // bit n % kSlots: the body of envelope n is still in its slot

  static constexpr uint32_t Bit(uint64_t number) { return uint32_t{1} << (number % kSlots); }

  bool Holds(uint64_t number) const { return number > released && (held & Bit(number)) != 0; }
  // Counts the next envelope, whose body stays in its slot if `holds`. True if slots were given
  // back: also of bodies that nobody has taken, once all slots are read, for else the sender
  // would be stuck.
  template <typename Word>
  bool CountRead(bool holds, Word* freed) {
    ++read;
    if (holds) held |= Bit(read);
    if (read - released == kSlots) held &= Bit(read);
    return GiveBack(freed);
  }
  // The body of this envelope was taken, or is not wanted.
  template <typename Word>
  void Release(uint64_t number, Word* freed) {
    held &= ~Bit(number);
    GiveBack(freed);
  }

 private:
  template <typename Word>
  bool GiveBack(Word* freed) {
    const uint64_t before = released;
    while (released < read && (held & Bit(released + 1)) == 0) ++released;
    if (released == before) return false;
    Publish(freed, released);
    return true;
  }
};

// The chunks that are in a ring and not read yet. Counts of chunks are never reset, and compared by
// subtraction: it does not matter when they wrap around.
template <typename Word>
uint64_t UnreadForSender(uint64_t written, const Word& chunks_read) {
  return written - Look(chunks_read);
}
template <typename Word>
uint64_t UnreadForReceiver(const Word& chunks_written, uint64_t read) {
  return Look(chunks_written) - read;
}

// Where a ring is: written before its first chunk is published, and read once there is a chunk.
template <typename Word, typename T>
void WritePlace(Word* word, T value) {
  word->store(value, std::memory_order_relaxed);
}
template <typename Word>
auto ReadPlace(const Word& word) {
  return word.load(std::memory_order_relaxed);
}

// A text in a slot that its writer may write again at any time. A reader gets the text that it
// asks for, or none.
template <typename Memory, size_t kWords>
struct alignas(128) TextSlotIn {
  typename Memory::template Atomic<uint64_t> stamp;  // counts the rank's texts; 0: being written
  typename Memory::template Atomic<uint64_t> words[kWords];

  void Write(uint64_t number, const uint64_t* text) {
    stamp.store(0, std::memory_order_relaxed);
    Memory::Fence(std::memory_order_release);
    for (size_t i = 0; i < kWords; ++i) words[i].store(text[i], std::memory_order_relaxed);
    Publish(&stamp, number);
  }
  // False: the slot has another text, or is being written.
  bool Read(uint64_t number, uint64_t* text) const {
    if (Look(stamp) != number) return false;
    for (size_t i = 0; i < kWords; ++i) text[i] = words[i].load(std::memory_order_relaxed);
    Memory::Fence(std::memory_order_acquire);
    return stamp.load(std::memory_order_relaxed) == number;
  }
};

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
  uint64_t verdicts_read;
  MessageHead head;
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
  std::atomic<uint64_t> pieces_written;  // of bodies whose envelopes were posted before them
};
static_assert(sizeof(SenderLine) == 128);

using TextSlot = TextSlotIn<MachineMemory, kPairTextWords>;
static_assert(sizeof(TextSlot) == 1024);

// The layout of the memory of all pair wires of `rank_size` ranks. Zeroed memory is its initial
// state. A value; points into memory that the communicator owns, aligned to 128 bytes.
class PairLayout {
 public:
  PairLayout(std::byte* base, int rank_size);

  static int64_t Bytes(int rank_size) { return Shape(rank_size).bytes; }
  static control::SegmentShape Shape(int rank_size);
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

// Wakes a peer that sleeps in its pair lane.
struct Doorbell {
  void (*ring)(void* context, int peer) = nullptr;
  void* context = nullptr;

  void Ring(int peer) const {
    if (ring != nullptr) ring(context, peer);
  }
};

// A rank's end of the pair wires of one host. A body that fits travels in its envelope; until the
// receiver wants it, it stays in the slot, unless a later envelope needs the slot. One of 16 KiB
// and more follows its envelope piece by piece, so that the receiver copies while the sender still
// writes. A body of more than 4 KiB in a window is read in place. Any other body waits at the
// sender until a verdict kGo, and then passes through a ring of chunks, one ring per ordered pair
// of ranks. Owned by the communicator; one thread at a time; waits for no one. Numbers that a peer
// wrote are copied once and checked before they are used.
class ShmPairWire : public PairWire {
 public:
  static int64_t Bytes(int rank_size) { return PairLayout::Bytes(rank_size); }

  // `base`: Bytes(size) bytes that all ranks share, aligned to 128, zeroed.
  ShmPairWire(std::byte* base, control::Endpoint* endpoint, Doorbell doorbell,
              WindowMailbox* mailbox);

  WireStep PostEnvelope(int peer, const Envelope& envelope, const void* data,
                        int64_t bytes) override;
  WireStep NextVerdict(int peer, Verdict* verdict) override;
  WireStep SendBody(int peer, const void* data, int64_t bytes, int64_t* sent) override;

  WireStep NextEnvelope(int peer, Envelope* envelope) override;
  BodyStep TakeBody(int peer, const Envelope& envelope, void* data, int64_t bytes,
                    int64_t* taken) override;
  void DropBody(int peer, const Envelope& envelope) override;
  WireStep PostVerdict(int peer, const Verdict& verdict) override;
  WireStep RecvBody(int peer, void* data, int64_t bytes, int64_t* received) override;

  Status fault() const override { return fault_; }

 private:
  // State for one peer: first as its sender, then as its receiver.
  struct PeerState {
    uint64_t posted = 0;         // envelopes to the peer
    uint64_t free_up_to = 0;     // of these, how many slots are free again, as last read
    uint64_t verdicts_read = 0;  // of the peer's verdicts
    uint64_t chunks_written = 0;
    uint64_t pieces_written = 0;
    std::shared_ptr<Window> ring;  // of chunks to the peer
    uint32_t ring_id = 0;
    bool ring_announced = false;

    SlotsRead<kPairSlots> slots;  // of the peer's envelopes
    uint64_t verdicts = 0;        // posted to the peer
    uint64_t verdicts_seen = 0;   // of these, how many the peer has read, as last seen
    uint64_t chunks_read = 0;
  };

  WireStep Place(const void* data, int64_t bytes, int16_t* form, BodyPlace* place);
  // Writes a body behind its envelope, which is posted, and publishes it piece by piece.
  void WritePieces(int rank, EnvelopeSlot* slot, const void* data, int64_t bytes);
  // Sends a window of this rank to the peers, unless they have it. *mails: how many mails of this
  // rank a peer must have read to use it.
  WireStep Announce(uint32_t id, uint64_t* mails);
  // The address of a range of a peer's window, or of this rank's; null until so many mails of the
  // peer's have arrived. All numbers come from the peer; a range outside the window is an error.
  Status Locate(int rank, const WindowSpot& spot, int64_t bytes, uint64_t mails,
                const std::byte** data);
  bool NoteVerdictsSeen(int rank, PeerState* peer, uint64_t count);
  WireStep MakeRing(int rank, PeerState* peer);
  BodyStep TakePieces(int rank, const Envelope& envelope, void* data, int64_t bytes,
                      int64_t* taken);
  BodyStep TakeWindow(int rank, const BodyPlace& place, void* data, int64_t bytes, int64_t* taken);
  WireStep Broken(int rank, const std::string& what);

  PeerState& peer(int rank) { return peers_[static_cast<size_t>(rank)]; }

  PairLayout layout_;
  control::Endpoint* endpoint_;
  const int rank_;
  Doorbell doorbell_;
  WindowMailbox* mailbox_;
  // The window that was located last: it is mapped while the wire copies from it, although the
  // group lane may read the mail that the peer has freed it.
  control::Segment located_;
  std::vector<PeerState> peers_;
  PeerCopy peer_copy_;
  uint64_t texts_ = 0;  // written by this rank
  Status fault_;
};

}  // namespace collops::shm

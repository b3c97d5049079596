#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// The words by which the two ends of a pair wire tell each other how far they are, with the order
// of each access. The functions are templates over the memory: tests/cpp/signals explores them in
// a model of weakly ordered memory.
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

}  // namespace collops::shm

#pragma once

#include <atomic>
#include <cstdint>

#include "collops/comm/control/board.h"
#include "collops/core/fence.h"

// The counts by which a writer and a reader share a ring of chunks, with the order of each access.
// They are never reset, and compared by subtraction: it does not matter when they wrap around.
// Templates over the memory: tests/cpp/signals explores them in a model of weakly ordered memory.
namespace collops::shm {

// A count of chunks from one rank to another, which one rank writes.
template <typename Memory>
struct alignas(control::kLineBytes) ChunkSignalIn {
  typename Memory::template Atomic<uint64_t> count;

  // For the rank that writes it.
  uint64_t Own() const { return count.load(std::memory_order_relaxed); }
  void Set(uint64_t value) { count.store(value, std::memory_order_release); }
  // For the other rank.
  uint64_t Theirs() const { return count.load(std::memory_order_acquire); }
};
using ChunkSignal = ChunkSignalIn<MachineMemory>;

constexpr int64_t SlotOf(int64_t chunk, int64_t num_slots) {
  return chunk % num_slots;
}

// For the writer: the chunks that the reader has not read. If there are fewer than slots, the slot
// of the next chunk is free.
template <typename Memory>
uint64_t NumUnread(const ChunkSignalIn<Memory>& produced, const ChunkSignalIn<Memory>& consumed) {
  const uint64_t written = produced.Own();
  return written - consumed.Theirs();
}

// For the writer, once the chunk is in its slot.
template <typename Memory>
void CountWritten(ChunkSignalIn<Memory>* produced) {
  produced->Set(produced->Own() + 1);
}

// For the reader, which has read `base` chunks in earlier calls and `read` chunks in this one:
// whether the next one is in its slot.
template <typename Memory>
bool HasChunk(const ChunkSignalIn<Memory>& produced, uint64_t base, int64_t read) {
  return produced.Theirs() - base > static_cast<uint64_t>(read);
}

// For the reader, once it has read the chunk.
template <typename Memory>
void CountRead(ChunkSignalIn<Memory>* consumed, uint64_t base, int64_t read) {
  consumed->Set(base + static_cast<uint64_t>(read));
}

}  // namespace collops::shm

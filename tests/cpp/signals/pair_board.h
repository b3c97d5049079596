// The memory of one direction of a pair wire in the model: rank 0 sends to rank 1. Its words are
// those of pair_wire.h; what is written beside them is plain data.
#pragma once

#include <deque>
#include <string>

#include "collops/comm/backends/shm/pair_wire.h"
#include "signals/model_words.h"

namespace signals {

constexpr int kSender = 0;
constexpr int kReceiver = 1;
constexpr uint64_t kSlots = 3;   // of envelopes, and of verdicts
constexpr uint64_t kChunks = 2;  // of the ring

struct PairSetup {
  uint64_t before = 0;  // messages, and verdicts, before the test begins
  uint64_t chunks_before = 0;
};

inline Word<uint64_t> MakeWord(const char* name, int writer, uint64_t value) {
  Explorer::Current().Name(name, writer);
  Word<uint64_t> word;
  word.Initialise(value);
  return word;
}

// The number in a slot after so many items.
constexpr uint64_t LastIn(uint64_t slot, uint64_t items) {
  const uint64_t back = (items % kSlots + kSlots - slot) % kSlots;
  return items > back ? items - back : 0;
}

struct PairBoard {
  explicit PairBoard(const PairSetup& of)
      : setup(of),
        envelopes_read(MakeWord("envelopes read", kReceiver, of.before)),
        chunks_read(MakeWord("chunks read", kReceiver, of.chunks_before)),
        verdicts_read(MakeWord("verdicts read", kSender, of.before)),
        chunks_written(MakeWord("chunks written", kSender, of.chunks_before)),
        ring(MakeWord("ring", kSender, 0)) {
    for (uint64_t slot = 0; slot < kSlots; ++slot) {
      const uint64_t last = LastIn(slot, of.before);
      numbers.push_back(MakeWord("envelope", kSender, last));
      stamps.push_back(MakeWord("verdict", kReceiver, last << 2));
      heads.emplace_back("an envelope");
      bodies.emplace_back("a body");
      verdicts.emplace_back("a verdict");
    }
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) chunks.emplace_back("a chunk");
  }

  PairSetup setup;
  Word<uint64_t> envelopes_read;
  Word<uint64_t> chunks_read;
  Word<uint64_t> verdicts_read;
  Word<uint64_t> chunks_written;
  Word<uint64_t> ring;
  std::deque<Word<uint64_t>> numbers;  // of the envelopes in the slots
  std::deque<Word<uint64_t>> stamps;   // of the verdicts in the slots
  std::deque<Plain> heads;             // what an envelope says: here, how many verdicts were read
  std::deque<Plain> bodies;            // the body in an envelope's slot
  std::deque<Plain> verdicts;          // what a verdict says: here, the message's number
  std::deque<Plain> chunks;
};

// What the sender writes as a body, and as a chunk; different in each.
constexpr uint64_t BodyOf(uint64_t number) {
  return number * 3 + 1;
}
constexpr uint64_t ChunkOf(uint64_t count) {
  return count * 3 + 2;
}

}  // namespace signals

// The memory that a few ranks share in the model: the library's signal heads and chunk counts, made
// of modelled words.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "collops/comm/backends/shm/exchange.h"
#include "collops/comm/control/signals.h"
#include "signals/model_words.h"

namespace signals {

using Head = collops::control::SignalHeadIn<ModelMemory>;

struct Group {
  int size = 2;
  int num_slots = 0;   // of a rank's ring of chunks; 0: it has none
  bool fails = false;  // whether a rank may fail
  uint64_t steps_before = 0;
  uint64_t chunks_before = 0;
};

// What one rank writes; peers read it.
struct RankWords {
  RankWords(const Group& group, int rank) {
    const std::string of = " of rank " + std::to_string(rank);
    Explorer& explorer = Explorer::Current();
    explorer.Name("head", rank);
    for (int parity = 0; parity < 2; ++parity) {
      heads.emplace_back();
      records.emplace_back("the call record" + of);
    }
    explorer.Name("finished", rank);
    finished = std::make_unique<Word<uint64_t>>();
    finished->Initialise(group.steps_before);
    explorer.Name("failed step", group.fails ? rank : kNobody);
    failed_step = std::make_unique<Word<uint64_t>>();
    for (int r = 0; group.num_slots > 0 && r < group.size; ++r) {
      explorer.Name("produced", rank);
      produced.emplace_back();
      produced.back().Initialise(group.chunks_before);
      explorer.Name("consumed", rank);
      consumed.emplace_back();
      consumed.back().Initialise(group.chunks_before);
    }
    for (int slot = 0; slot < group.num_slots; ++slot) slots.emplace_back("a chunk" + of);
  }

  std::deque<Head> heads;     // by parity
  std::deque<Plain> records;  // by parity: the data of the step
  std::unique_ptr<Word<uint64_t>> finished;
  std::unique_ptr<Word<uint64_t>> failed_step;
  std::deque<Word<uint64_t>> produced;  // by reader
  std::deque<Word<uint64_t>> consumed;  // by writer
  std::deque<Plain> slots;
};

struct Board {
  explicit Board(const Group& of) : group(of) {
    Explorer::Current().Name("failed rank", of.fails ? kAnyRank : kNobody);
    failed_rank = std::make_unique<Word<uint32_t>>();
    for (int r = 0; r < of.size; ++r) ranks.emplace_back(of, r);
  }

  Group group;
  std::unique_ptr<Word<uint32_t>> failed_rank;
  std::deque<RankWords> ranks;
};

// As Endpoint::FailedStep().
struct StepOf {
  const Board* board;

  uint64_t operator()(uint32_t failed) const {
    return board->ranks[failed - 1].failed_step->load(std::memory_order_relaxed);
  }
};

// What a rank writes in a step, different in every rank and step.
inline uint64_t Data(int rank, uint64_t step, int64_t chunk = 0) {
  return step * 1000 + static_cast<uint64_t>(rank) * 100 + static_cast<uint64_t>(chunk);
}

}  // namespace signals

// Runs the programs of a few ranks over WeakMemory in every order, with every value that a load may
// return. A rank can be interrupted before each access whose result depends on the others: loads of
// words that others write, compare-exchanges, sequentially consistent fences and waits. All other
// accesses move with the one before; the order in which they are made changes nothing, because a
// load may still return older stores and races are found by clocks. Nothing is bounded or left out.
//
// A rank's program is a function, called anew for each of its moves: what it did before is replayed
// from a log. So the search goes back by forgetting the end of the logs and of the memory. Two
// orders that lead to the same memory and the same logs are continued once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "signals/weak_memory.h"

namespace signals {

// Who writes a word. Loads of the writer itself do not depend on the others.
constexpr int kAnyRank = -1;
constexpr int kNobody = -2;

class Explorer {
 public:
  using Program = std::function<void()>;

  // `ordered`: of the memory, which then has no cells.
  explicit Explorer(Weakened weakened = {}, bool ordered = false)
      : memory_(std::move(weakened), ordered) {
    current_ = this;
  }
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;
  ~Explorer() { current_ = nullptr; }
  static Explorer& Current() { return *current_; }

  // The name and the writer of the words that are made next.
  void Name(const std::string& words, int writer) {
    name_ = words;
    writer_ = writer;
  }
  int AddWord() {
    writers_.push_back(writer_);
    return memory_.AddWord(name_);
  }
  int AddCell(const std::string& name) { return memory_.AddCell(name); }
  void Initialise(int word, uint64_t value) { memory_.Initialise(word, value); }
  // The rank may end before each of its accesses, and the others then find a 1 in the word. In an
  // execution one rank ends at most.
  void MayEnd(int rank, int word) { ends_[rank] = word; }

  // Searches all orders of the programs, one per rank. Returns the first fault, or nothing.
  std::string Search(std::vector<Program> programs) {
    programs_ = std::move(programs);
    logs_.resize(programs_.size());
    executions_ = Visit();
    return fault_;
  }
  // States that were visited, and orders of moves that lead from the first to a last state.
  size_t states() const { return num_states_; }
  double executions() const { return executions_; }

  // The accesses of a program.
  uint64_t Load(int word, std::memory_order order) {
    if (probing_) {
      watched_ |= uint64_t{1} << word;
      return memory_.Last(word);
    }
    if (Replays()) return Replayed();
    const int writer = writers_[static_cast<size_t>(word)];
    if (writer != kNobody && writer != rank_ && !waiting_) Interrupt();
    const int age = Choose(memory_.NumReadable(rank_, word));
    const int index = memory_.state.num_stores[word] - 1 - age;
    return Log(memory_.Load(rank_, word, age, order),
               memory_.ordered() ? 0 : static_cast<uint64_t>(word * 256 + index));
  }
  void Store(int word, uint64_t value, std::memory_order order) {
    if (Replays()) return static_cast<void>(Replayed());
    const int writer = writers_[static_cast<size_t>(word)];
    if (writer != kAnyRank && writer != rank_) Fault("a word has another writer than it says");
    // Older values, which a load cannot return from ordered memory, and not after a rank's end.
    if (writer == kAnyRank || memory_.ordered() || ends_[rank_] >= 0) Interrupt();
    memory_.Put(rank_, word, value, order);
    Log(0, NumStores(word));
  }
  bool CompareExchange(int word, uint64_t* expected, uint64_t value) {
    uint64_t last = 0;
    if (Replays()) {
      last = Replayed();
    } else {
      Interrupt();
      last = memory_.Load(rank_, word, 0, std::memory_order_seq_cst);
      if (last == *expected) memory_.Replace(rank_, word, value, std::memory_order_seq_cst);
      Log(last, NumStores(word));
    }
    if (last == *expected) return true;
    *expected = last;
    return false;
  }
  void Fence(std::memory_order order) {
    if (Replays()) return static_cast<void>(Replayed());
    const bool with_others = order == std::memory_order_seq_cst;
    if (with_others) Interrupt();
    memory_.Fence(rank_, order);
    Log(0, with_others ? ++state_.num_fences : 0);
  }
  void WriteCell(int cell, uint64_t value) {
    if (Replays()) return static_cast<void>(Replayed());
    Fault(memory_.WriteCell(rank_, cell, value));
    Log(0, 0);
  }
  uint64_t ReadCell(int cell) {
    if (Replays()) return Replayed();
    uint64_t value = 0;
    Fault(memory_.ReadCell(rank_, cell, &value));
    return Log(value, 0);
  }
  // Waits until `ready`, which loads words and, once true, stays true as they change. A look that
  // finds nothing is left out: it would only shrink what the next look may find.
  template <typename Ready>
  void Await(const Ready& ready) {
    if (Replays()) return static_cast<void>(ready());
    Interrupt();
    watched_ = 0;
    probing_ = true;
    const bool can_be = ready();
    probing_ = false;
    if (!can_be) throw Stop::kWaits;
    waiting_ = true;
    const bool is_ready = ready();
    waiting_ = false;
    if (!is_ready) throw Stop::kNotReady;
  }
  // What the program does from here on depends on `state` alone, not on what it did before.
  void Forget(uint64_t state) {
    if (Replays()) return static_cast<void>(Replayed());
    Log(0, 0);
    state_.ranks[rank_].history = state;
  }
  // The last value of a word, for Expect() alone.
  uint64_t Last(int word) const { return memory_.Last(word); }
  // Reports what must not be.
  void Expect(bool holds, const std::string& what) {
    if (!Replays() && !holds) Fault("rank " + std::to_string(rank_) + ": " + what);
  }

 private:
  // For the history: in ordered memory only the last store counts.
  uint64_t NumStores(int word) const {
    return memory_.ordered() ? 0 : static_cast<uint64_t>(memory_.state.num_stores[word]);
  }
  enum class Stop { kInterrupted, kWaits, kNotReady, kFault };
  enum class Moved { kYes, kWaits, kNotReady };
  struct Choice {
    int taken;
    int of;
  };
  struct RankState {
    uint64_t history = 0;  // identifies the log
    size_t logged = 0;
    bool done = false;
    uint64_t watched = 0;  // the words that it waits for, and how many stores they had
    int stores_watched = 0;
  };
  struct State {
    RankState ranks[kMostRanks];
    uint64_t num_fences = 0;
    bool one_has_ended = false;
  };

  // Explores what follows the current state; returns the number of its executions.
  double Visit() {
    const uint64_t signature = Signature();
    const auto known = visited_.find(signature);
    if (known != visited_.end()) return known->second;
    ++num_states_;
    State state = state_;
    const MemoryState memory = memory_.state;
    const int num_ranks = static_cast<int>(programs_.size());
    double executions = 0;
    bool moves = false;
    bool done = true;
    for (int rank = 0; rank < num_ranks; ++rank) {
      done = done && state.ranks[rank].done;
      // No move: nobody may wait for the end of a rank that waits.
      if (ends_[rank] >= 0 && !state.one_has_ended && !state.ranks[rank].done) {
        state_ = state;
        memory_.state = memory;
        memory_.Put(rank, ends_[rank], 1, std::memory_order_release);
        state_.ranks[rank] = {};
        state_.ranks[rank].done = state_.one_has_ended = true;
        executions += Visit();
        if (!fault_.empty()) return 0;
      }
      std::vector<Choice> choices;
      while (!state.ranks[rank].done) {
        state_ = state;
        memory_.state = memory;
        const Moved moved = Move(rank, &choices);
        if (!fault_.empty()) return 0;
        if (moved == Moved::kWaits) {
          state.ranks[rank].watched = state_.ranks[rank].watched;
          state.ranks[rank].stores_watched = state_.ranks[rank].stores_watched;
          break;
        }
        moves = true;
        if (moved == Moved::kYes) executions += Visit();
        if (!fault_.empty()) return 0;
        if (!Next(&choices)) break;
      }
    }
    if (!moves && !done) return DescribeWaits(state);
    if (done) executions = 1;
    visited_.emplace(signature, executions);
    return executions;
  }

  // One move of a rank: its next access that depends on others, and all up to the one after that.
  Moved Move(int rank, std::vector<Choice>* choices) {
    RankState& state = state_.ranks[rank];
    if (state.watched != 0 && StoresOf(state.watched) == state.stores_watched) return Moved::kWaits;
    rank_ = rank;
    logs_[static_cast<size_t>(rank)].resize(state.logged);
    replayed_ = 0;
    choices_ = choices;
    chosen_ = 0;
    state.watched = 0;
    try {
      programs_[static_cast<size_t>(rank)]();
      state.done = true;
    } catch (const Stop stop) {
      probing_ = waiting_ = false;
      if (stop == Stop::kNotReady) return Moved::kNotReady;
      if (stop == Stop::kWaits) {
        state.watched = watched_;
        state.stores_watched = StoresOf(watched_);
        return Moved::kWaits;
      }
    }
    state.logged = logs_[static_cast<size_t>(rank)].size();
    return Moved::kYes;
  }
  static bool Next(std::vector<Choice>* choices) {
    while (!choices->empty() && choices->back().taken + 1 == choices->back().of) {
      choices->pop_back();
    }
    if (choices->empty()) return false;
    ++choices->back().taken;
    return true;
  }
  int Choose(int of) {
    if (of == 1) return 0;
    if (chosen_ == choices_->size()) choices_->push_back({0, of});
    return (*choices_)[chosen_++].taken;
  }
  void Interrupt() {
    if (logs_[static_cast<size_t>(rank_)].size() > state_.ranks[rank_].logged) {
      throw Stop::kInterrupted;
    }
  }

  bool Replays() const { return replayed_ < logs_[static_cast<size_t>(rank_)].size(); }
  uint64_t Replayed() { return logs_[static_cast<size_t>(rank_)][replayed_++]; }
  // `what` tells apart what the access could have done instead.
  uint64_t Log(uint64_t value, uint64_t what) {
    uint64_t& history = state_.ranks[rank_].history;
    history = Mix(Mix(history, value), what);
    logs_[static_cast<size_t>(rank_)].push_back(value);
    ++replayed_;
    return value;
  }
  uint64_t Signature() const {
    uint64_t hash = memory_.Hash();
    for (const RankState& rank : state_.ranks) hash = Mix(Mix(hash, rank.history), rank.done);
    return hash;
  }
  int StoresOf(uint64_t words) const {
    int stores = 0;
    for (int w = 0; w < memory_.num_words(); ++w) {
      if ((words >> w & 1) != 0) stores += memory_.state.num_stores[w];
    }
    return stores;
  }

  void Fault(const std::string& what) {
    if (what.empty()) return;
    fault_ = what;
    throw Stop::kFault;
  }
  double DescribeWaits(const State& state) {
    for (size_t rank = 0; rank < programs_.size(); ++rank) {
      if (!state.ranks[rank].done) fault_ += "rank " + std::to_string(rank) + " waits forever; ";
    }
    return 0;
  }

  static inline Explorer* current_ = nullptr;

  WeakMemory memory_;
  std::string name_;
  int writer_ = kAnyRank;
  std::vector<int> writers_;  // by word
  int ends_[kMostRanks] = {-1, -1, -1};
  std::vector<Program> programs_;
  std::vector<std::vector<uint64_t>> logs_;  // by rank: what its accesses returned
  State state_;
  std::unordered_map<uint64_t, double> visited_;  // executions that follow
  std::string fault_;
  size_t num_states_ = 0;
  double executions_ = 0;

  // Of the move that is being made.
  int rank_ = 0;
  size_t replayed_ = 0;
  std::vector<Choice>* choices_ = nullptr;
  size_t chosen_ = 0;
  bool probing_ = false;
  bool waiting_ = false;
  uint64_t watched_ = 0;
};

// Searches all orders of `programs` and says what was found; prints how much was searched. Too few
// executions are a fault, too: then the programs do not what the test says.
inline std::string Explore(Explorer* explorer, const char* what,
                           const std::vector<Explorer::Program>& programs,
                           double least_executions) {
  const std::string fault = explorer->Search(programs);
  std::printf("  %s: %.3g executions, %zu states%s%s\n", what, explorer->executions(),
              explorer->states(), fault.empty() ? "" : ": ", fault.c_str());
  if (fault.empty() && explorer->executions() < least_executions) return "too few executions";
  return fault;
}

}  // namespace signals

// Memory in which a rank's store reaches the others as late as its memory order allows: a load may
// return any store that is not older than what has happened before it (the model of C++ without
// loads that see the future). Plain data is checked by vector clocks: two accesses, one of them a
// write, must be ordered by signals.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace signals {

constexpr int kMostRanks = 3;
constexpr int kMostWords = 64;
constexpr int kMostCells = 24;

inline uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15U;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9U;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebU;
  return hash ^ (hash >> 31);
}

// What has happened before an access, or before a store that is read.
struct View {
  uint16_t clock[kMostRanks + 1] = {};  // by rank: how often it has released, at least
  uint8_t seen[kMostWords] = {};        // by word: the oldest store that may still be read

  uint64_t Hash(uint64_t hash) const {
    uint64_t words[sizeof(View) / sizeof(uint64_t)];
    std::memcpy(words, this, sizeof(View));
    for (const uint64_t word : words) hash = Mix(hash, word);
    return hash;
  }

  void JoinSeen(const View& other) {
    for (int w = 0; w < kMostWords; ++w) seen[w] = std::max(seen[w], other.seen[w]);
  }
  void Join(const View& other) {
    for (int r = 0; r < kMostRanks; ++r) clock[r] = std::max(clock[r], other.clock[r]);
    JoinSeen(other);
  }
};
static_assert(sizeof(View) % sizeof(uint64_t) == 0);

struct Store {
  uint64_t value = 0;
  View released;  // what a rank that acquires this store gets
  uint64_t hash = 0;
};

struct RankView {
  View now;
  View acquirable;  // what an acquire fence adds, by the loads before it
  View released;    // what later relaxed stores hand over, by the last release fence
};

// Plain data: a call record's fields, the bytes of a chunk.
struct Cell {
  uint64_t value = 0;
  int8_t writer = -1;
  uint16_t written = 0;  // the writer's clock then
  uint16_t read[kMostRanks] = {};
};

// An order that is made relaxed: of the loads or the stores of the words with a name, or of all
// fences with that order.
struct Weakened {
  std::string words;
  std::memory_order order = std::memory_order_relaxed;
};

inline bool Acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}
inline bool Releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

// The part of the memory that a search puts back when it goes back.
struct MemoryState {
  RankView ranks[kMostRanks];
  View fenced;  // of fences that are sequentially consistent
  uint8_t num_stores[kMostWords] = {};
  Cell cells[kMostCells];
};

// Stores to a word that several ranks write are ordered as the search makes them, and a
// compare-exchange reads the last one.
class WeakMemory {
 public:
  // `ordered`: a load returns the last store, for programs with too many orders else.
  explicit WeakMemory(Weakened weakened, bool ordered = false)
      : weakened_(std::move(weakened)), ordered_(ordered) {
    for (int r = 0; r < kMostRanks; ++r) state.ranks[r].now.clock[r] = 1;
  }

  int AddWord(const std::string& name) {
    const int word = num_words();
    if (word == kMostWords) throw std::length_error("too many words");
    stores_.push_back({Store{}});
    word_names_.push_back(name);
    state.num_stores[word] = 1;
    return word;
  }
  int AddCell(const std::string& name) {
    if (num_cells() == kMostCells) throw std::length_error("too many cells");
    cell_names_.push_back(name);
    return num_cells() - 1;
  }
  int num_words() const { return static_cast<int>(stores_.size()); }
  int num_cells() const { return static_cast<int>(cell_names_.size()); }
  // Before the search begins.
  void Initialise(int word, uint64_t value) { stores_[Index(word)][0].value = value; }

  bool ordered() const { return ordered_; }
  int NumReadable(int rank, int word) const {
    if (ordered_) return 1;
    return state.num_stores[word] - state.ranks[rank].now.seen[word];
  }
  uint64_t Last(int word) const { return At(word, state.num_stores[word] - 1).value; }

  // `age`: how many readable stores are newer than the one that the load returns.
  uint64_t Load(int rank, int word, int age, std::memory_order order) {
    const int index = state.num_stores[word] - 1 - age;
    const Store& store = At(word, index);
    if (ordered_) return store.value;
    RankView& view = state.ranks[rank];
    view.now.seen[word] = static_cast<uint8_t>(index);
    view.acquirable.Join(store.released);
    if (Acquires(Of(word, order, std::memory_order_acquire))) view.now.Join(store.released);
    return store.value;
  }
  void Put(int rank, int word, uint64_t value, std::memory_order order) {
    Add(rank, word, value, order, {});
  }
  // A compare-exchange that succeeds. Who acquires it also gets what the store before released.
  void Replace(int rank, int word, uint64_t value, std::memory_order order) {
    Add(rank, word, value, order, At(word, state.num_stores[word] - 1).released);
  }
  void Fence(int rank, std::memory_order order) {
    if (weakened_.words == "fence" && weakened_.order == order) return;
    RankView& view = state.ranks[rank];
    if (Acquires(order)) view.now.Join(view.acquirable);
    if (order == std::memory_order_seq_cst) {
      view.now.JoinSeen(state.fenced);
      state.fenced.JoinSeen(view.now);
    }
    if (Releases(order)) {
      view.released = view.now;
      Tick(rank);
    }
  }

  // These return what is wrong, or nothing.
  std::string WriteCell(int rank, int cell, uint64_t value) {
    Cell& data = state.cells[cell];
    const View& now = state.ranks[rank].now;
    for (int r = 0; r < kMostRanks; ++r) {
      if (data.read[r] > now.clock[r]) return Race(rank, " writes ", cell, r, " may still read it");
    }
    if (!WriteIsSeen(data, now)) return Race(rank, " writes ", cell, data.writer, " writes it");
    data.value = value;
    data.writer = static_cast<int8_t>(rank);
    data.written = now.clock[rank];
    return "";
  }
  std::string ReadCell(int rank, int cell, uint64_t* value) {
    Cell& data = state.cells[cell];
    if (!WriteIsSeen(data, state.ranks[rank].now)) {
      return Race(rank, " reads ", cell, data.writer, " may still write it");
    }
    data.read[rank] = state.ranks[rank].now.clock[rank];
    *value = data.value;
    return "";
  }

  // Identifies what the ranks may find from now on.
  uint64_t Hash() const {
    if (ordered_) return HashOfLast();
    uint64_t hash = state.fenced.Hash(0);
    for (const RankView& rank : state.ranks) {
      hash = rank.released.Hash(rank.acquirable.Hash(rank.now.Hash(hash)));
    }
    for (int w = 0; w < num_words(); ++w) {
      int oldest = state.num_stores[w] - 1;
      for (const RankView& rank : state.ranks) oldest = std::min<int>(oldest, rank.now.seen[w]);
      for (int i = oldest; i < state.num_stores[w]; ++i) hash = Mix(hash, At(w, i).hash);
    }
    for (int c = 0; c < num_cells(); ++c) {
      const Cell& cell = state.cells[c];
      hash = Mix(Mix(hash, cell.value), cell.written);
      for (const uint16_t read : cell.read) hash = Mix(hash, read);
    }
    return hash;
  }

  MemoryState state;

 private:
  uint64_t HashOfLast() const {
    uint64_t hash = 0;
    for (int w = 0; w < num_words(); ++w) hash = Mix(hash, Last(w));
    return hash;
  }
  static size_t Index(int number) { return static_cast<size_t>(number); }
  const Store& At(int word, int index) const { return stores_[Index(word)][Index(index)]; }
  std::memory_order Of(int word, std::memory_order order, std::memory_order part) const {
    const bool weak = weakened_.order == part && word_names_[Index(word)] == weakened_.words;
    return weak ? std::memory_order_relaxed : order;
  }
  void Add(int rank, int word, uint64_t value, std::memory_order order, const View& before) {
    RankView& view = state.ranks[rank];
    const int index = state.num_stores[word]++;
    if (index == UINT8_MAX) throw std::length_error("too many stores");
    view.now.seen[word] = static_cast<uint8_t>(index);
    const bool releases = Releases(Of(word, order, std::memory_order_release));
    Store store{value, releases ? view.now : view.released};
    store.released.Join(before);
    store.hash = store.released.Hash(value);
    if (releases) Tick(rank);
    std::vector<Store>& stores = stores_[Index(word)];
    if (stores.size() == Index(index)) stores.emplace_back();
    stores[Index(index)] = store;
  }
  static bool WriteIsSeen(const Cell& data, const View& now) {
    return data.writer < 0 || data.written <= now.clock[data.writer];
  }
  // What a rank accesses after a release is not handed over by it.
  void Tick(int rank) { ++state.ranks[rank].now.clock[rank]; }
  std::string Race(int rank, const char* does, int cell, int other, const char* what) const {
    return "rank " + std::to_string(rank) + does + cell_names_[Index(cell)] + " while rank " +
           std::to_string(other) + what;
  }

  Weakened weakened_;
  const bool ordered_;
  std::vector<std::vector<Store>> stores_;  // by word; the state says how many are valid
  std::vector<std::string> word_names_;
  std::vector<std::string> cell_names_;
};

}  // namespace signals

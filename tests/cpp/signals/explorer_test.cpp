// The search and its memory on small programs whose outcomes are known: what weak memory allows is
// found, what C++ forbids is not, and no order is left out.
#include <array>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "signals/model_words.h"

namespace {

using signals::Explorer;
using signals::kAnyRank;
using signals::ModelMemory;
using signals::Plain;
using signals::Weakened;
using signals::Word;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

// Rank 0 stores x and then y; rank 1 loads y and then x. Returns all pairs (y, x) it can get.
std::set<std::pair<int, int>> Pass(std::memory_order store, std::memory_order load) {
  Explorer explorer;
  explorer.Name("word", 0);
  Word<int> x;
  Word<int> y;
  std::set<std::pair<int, int>> got;
  const auto writer = [&] {
    x.store(1, kRelaxed);
    y.store(1, store);
  };
  const auto reader = [&] {
    const int first = y.load(load);
    got.emplace(first, x.load(kRelaxed));
  };
  EXPECT_EQ(explorer.Search({writer, reader}), "");
  return got;
}

// Each rank stores its word, and loads the other's behind a fence. Returns all pairs.
std::set<std::pair<int, int>> Cross(std::memory_order fence) {
  Explorer explorer;
  explorer.Name("word", 0);
  Word<int> x;
  explorer.Name("word", 1);
  Word<int> y;
  explorer.Name("result", 0);
  Word<int> result;
  std::set<std::pair<int, int>> got;
  const auto first = [&] {
    x.store(1, kRelaxed);
    ModelMemory::Fence(fence);
    result.store(y.load(kRelaxed) + 1, kRelaxed);
  };
  const auto second = [&] {
    y.store(1, kRelaxed);
    ModelMemory::Fence(fence);
    const int theirs = x.load(kRelaxed);
    explorer.Await([&] { return result.load(kRelaxed) > 0; });
    got.emplace(result.load(kRelaxed) - 1, theirs);
  };
  EXPECT_EQ(explorer.Search({first, second}), "");
  return got;
}

// Rank 0 writes plain data and a flag, rank 1 awaits the flag and reads the data.
std::string Guard(std::memory_order store, std::memory_order load, bool waits) {
  Explorer explorer;
  explorer.Name("flag", 0);
  Word<int> flag;
  const Plain data("the data");
  const auto writer = [&] {
    data.Write(7);
    flag.store(1, store);
  };
  const auto reader = [&] {
    if (waits) explorer.Await([&] { return flag.load(load) == 1; });
    explorer.Expect(data.Read() == 7, "wrong data");
  };
  return explorer.Search({writer, reader});
}

}  // namespace

TEST(AMessageIsSeenWholeOnlyWithReleaseAndAcquire) {
  EXPECT_EQ(Pass(kRelaxed, kRelaxed).count({1, 0}), 1U);
  EXPECT_EQ(Pass(kRelease, kRelaxed).count({1, 0}), 1U);
  EXPECT_EQ(Pass(kRelaxed, kAcquire).count({1, 0}), 1U);
  const auto whole = Pass(kRelease, kAcquire);
  EXPECT_EQ(whole.count({1, 0}), 0U);
  EXPECT_EQ(whole.size(), 3U);
}

TEST(TwoStoresPassEachOtherUnlessFencesAreSequentiallyConsistent) {
  EXPECT_EQ(Cross(std::memory_order_acq_rel).size(), 4U);
  const auto ordered = Cross(kSeqCst);
  EXPECT_EQ(ordered.count({0, 0}), 0U);
  EXPECT_EQ(ordered.size(), 3U);
}

TEST(ARaceOnPlainDataIsFound) {
  EXPECT_EQ(Guard(kRelease, kAcquire, true), "");
  for (const std::string& found : {Guard(kRelaxed, kAcquire, true), Guard(kRelease, kRelaxed, true),
                                   Guard(kRelease, kAcquire, false)}) {
    EXPECT_CONTAINS(found, "the data while rank ");
  }
}

// A relaxed store behind a release fence, and a relaxed load before an acquire fence.
TEST(FencesOrderRelaxedAccesses) {
  for (const bool releases : {true, false}) {
    for (const bool acquires : {true, false}) {
      Explorer explorer;
      explorer.Name("flag", 0);
      Word<int> flag;
      const Plain data("the data");
      const auto writer = [&] {
        data.Write(7);
        if (releases) ModelMemory::Fence(kRelease);
        flag.store(1, kRelaxed);
      };
      const auto reader = [&] {
        explorer.Await([&] { return flag.load(kRelaxed) == 1; });
        if (acquires) ModelMemory::Fence(kAcquire);
        data.Read();
      };
      EXPECT_EQ(explorer.Search({writer, reader}).empty(), releases && acquires);
    }
  }
}

TEST(AWaitThatNothingEndsIsFound) {
  Explorer explorer;
  explorer.Name("flag", 0);
  Word<int> flag;
  const auto writer = [&] { flag.store(1, kRelease); };
  const auto reader = [&] { explorer.Await([&] { return flag.load(kAcquire) == 2; }); };
  EXPECT_CONTAINS(explorer.Search({writer, reader}), "rank 1 waits forever");
}

// Three ranks that each replace one word twice: 6! / (2! * 2! * 2!) orders.
TEST(EveryOrderIsExplored) {
  Explorer explorer;
  explorer.Name("word", kAnyRank);
  Word<int> word;
  std::set<int> last;
  std::vector<Explorer::Program> programs;
  for (int rank = 0; rank < 3; ++rank) {
    programs.emplace_back([&word, &last, rank] {
      for (int i = 0; i < 2; ++i) {
        int expected = -1;
        word.compare_exchange_strong(expected, -1);
        last.insert(expected * 10 + rank);
      }
    });
  }
  EXPECT_EQ(explorer.Search(programs), "");
  EXPECT_EQ(explorer.executions(), 90.0);
}

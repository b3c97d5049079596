// Ranks that are threads on one memory of pair wires, so that TSan can see them.
#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "pairs/pair_kit.h"

namespace {

using collops::shm::kPairRingBytes;
using pairs::Buffer;
using pairs::Host;
using pairs::PairLane;
using pairs::Pattern;
using pairs::Recv;
using pairs::Send;
using pairs::TransferHandle;

#if defined(__SANITIZE_THREAD__)
constexpr uint32_t kMessages = 400;
#else
constexpr uint32_t kMessages = 3000;
#endif

// Polls until all transfers are done and the peers have got the verdicts; false after a minute.
bool Await(PairLane* lane, const std::vector<TransferHandle>& handles) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (const TransferHandle handle : handles) {
    while (!lane->Done(handle)) {
      if (lane->Poll()) continue;
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    if (!lane->Collect(handle).ok()) return false;
  }
  while (lane->OwesVerdicts()) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (!lane->Poll()) std::this_thread::yield();
  }
  return true;
}

int64_t BytesOf(uint32_t i) {
  if (i % 93 == 0) return kPairRingBytes + 300000 + i;
  return i % 31 == 0   ? 300000 + i
         : i % 7 == 0  ? 262209 + i
         : i % 11 == 0 ? 200000 + i
                       : i % 5 * 1000;
}

TEST(BlockingSendsAndReceivesOfTwoThreads) {
  Host host(2);
  const auto run = [&](int rank) {
    for (uint32_t i = 0; i < kMessages; ++i) {
      const bool sends = (i % 3 == 0) == (rank == 0);
      Buffer x(Pattern(BytesOf(i), i)), out(BytesOf(i));
      const TransferHandle handle =
          host[rank].Post(sends ? Send(1 - rank, 1, &x) : Recv(1 - rank, 1, &out));
      ASSERT_TRUE(Await(&host[rank], {handle}));
      if (!sends) EXPECT_TRUE(out.Holds(Pattern(BytesOf(i), i)));
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST(ManyTransfersOfFourThreadsAtOnce) {
  constexpr int kRanks = 4;
  constexpr uint32_t kBatch = 25;
  constexpr int64_t kMost = kPairRingBytes + 400000;
  Host host(kRanks);
  std::deque<Buffer> windows;  // of every rank, for every fifth message
  for (int rank = 0; rank < kRanks; ++rank) {
    windows.emplace_back(host.NewWindow(rank, kMost),
                         Pattern(kMost, 900U + static_cast<uint32_t>(rank)));
  }
  const auto run = [&](int rank) {
    std::mt19937 random(static_cast<uint32_t>(rank));
    for (uint32_t round = 0; round < kMessages / kBatch; ++round) {
      std::deque<Buffer> x, out;
      std::vector<TransferHandle> handles;
      std::vector<collops::Transfer> list;
      for (int peer = 0; peer < kRanks; ++peer) {
        for (uint32_t i = 0; i < kBatch; ++i) {
          const int64_t bytes = BytesOf(i + round);
          const uint32_t seed = round * 100 + i;
          x.emplace_back(Pattern(bytes, seed + static_cast<uint32_t>(rank) * 7919));
          out.emplace_back(bytes);
          const auto tag = static_cast<int32_t>(i);  // one message per tag: any order is right
          list.push_back(Send(peer, tag, &x.back()));
          if (i % 5 == 4) {
            list.back().data = windows[static_cast<size_t>(rank)].data();
          }
          list.push_back(Recv(peer, tag, &out.back()));
        }
      }
      std::shuffle(list.begin(), list.end(), random);
      for (const collops::Transfer& transfer : list) handles.push_back(host[rank].Post(transfer));
      ASSERT_TRUE(Await(&host[rank], handles));
      for (uint32_t at = 0; at < out.size(); ++at) {
        const uint32_t peer = at / kBatch;
        const uint32_t i = at % kBatch;
        const int64_t bytes = BytesOf(i + round);
        const uint32_t seed = round * 100 + i;
        std::vector<std::byte> want = Pattern(bytes, seed + peer * 7919);
        if (i % 5 == 4) want.assign(windows[peer].data(), windows[peer].data() + bytes);
        EXPECT_TRUE(out[at].Holds(want));
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < kRanks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

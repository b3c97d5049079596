// The collectives of the shm backend between processes: random calls with new data each time, whose
// inputs are overwritten right after the return, so that a missing wait gives wrong results.
#include <algorithm>
#include <numeric>
#include <random>

#include "collops/kernels/copy.h"
#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::AllReduceCall;
using collops::Communicator;
using collops::DType;
using collops::Range;
using collops::ReduceScatterVCall;
using collops::Window;

int32_t Value(int call, int rank, int64_t i) {
  return static_cast<int32_t>(call * 7919 + rank * 104729 + i * 31);
}

// Memory in a window, or plain memory.
class Buffer {
 public:
  Buffer(Communicator& communicator, bool window, int64_t count) {
    if (window) {
      EXPECT_TRUE(communicator.AllocateWindow(count * 4, &window_).ok());
      data_ = static_cast<int32_t*>(window_->data());
    } else {
      plain_.resize(static_cast<size_t>(count) + 1);
      data_ = plain_.data();
    }
  }
  int32_t* data() { return data_; }

 private:
  std::shared_ptr<Window> window_;
  std::vector<int32_t> plain_;
  int32_t* data_ = nullptr;
};

// Equal on every rank: counts of which a quarter are zero, with small and large ones.
std::vector<int64_t> RandomCounts(std::mt19937* random, int size) {
  static constexpr int64_t kLimits[] = {8, 300, 5000, 40000, 700000};
  const int64_t limit = kLimits[(*random)() % 5];
  std::vector<int64_t> counts(static_cast<size_t>(size));
  for (int64_t& count : counts) {
    const int64_t drawn = static_cast<int64_t>((*random)()) % limit;
    count = (*random)() % 4 == 0 ? 0 : drawn;
  }
  return counts;
}

std::vector<int64_t> Packed(const std::vector<int64_t>& counts) {
  std::vector<int64_t> displs(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  return displs;
}

void CheckAllGatherV(Communicator& communicator, int call_number, bool window,
                     const std::vector<int64_t>& counts) {
  const int rank = communicator.rank();
  const std::vector<int64_t> displs = Packed(counts);
  const int64_t total = displs.back() + counts.back();
  const int64_t own = counts[static_cast<size_t>(rank)];
  Buffer x(communicator, window, own);
  for (int64_t i = 0; i < own; ++i) x.data()[i] = Value(call_number, rank, i);
  std::vector<int32_t> output(static_cast<size_t>(total) + 3, -1);
  const Range gap{total, total + 2};
  static const collops::Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  call.gaps = &gap;
  call.num_gaps = 1;
  const collops::Status status = communicator.AllGatherV(call);
  for (int64_t i = 0; i < own; ++i) x.data()[i] = -2;
  if (!EXPECT_EQ(status.message(), "")) return;
  int64_t wrong = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    for (int64_t i = 0; i < counts[r]; ++i) {
      wrong += output[static_cast<size_t>(displs[r] + i)] != Value(call_number, int(r), i);
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(output[static_cast<size_t>(total)], 0);
  EXPECT_EQ(output[static_cast<size_t>(total) + 1], 0);
  EXPECT_EQ(output[static_cast<size_t>(total) + 2], -1);
}

void CheckReduceScatterV(Communicator& communicator, int call_number, bool window,
                         const std::vector<int64_t>& counts) {
  const int rank = communicator.rank();
  const std::vector<int64_t> displs = Packed(counts);
  const int64_t total = displs.back() + counts.back();
  Buffer x(communicator, window, total);
  for (int64_t i = 0; i < total; ++i) x.data()[i] = Value(call_number, rank, i);
  const int64_t own = counts[static_cast<size_t>(rank)];
  std::vector<int32_t> output(static_cast<size_t>(own) + 2, -1);
  static const collops::Agreement agreement("ReduceScatterV");
  ReduceScatterVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.output = output.data();
  call.output_count = own + 1;
  call.send_counts = counts.data();
  call.sdispls = displs.data();
  const collops::Status status = communicator.ReduceScatterV(call);
  for (int64_t i = 0; i < total; ++i) x.data()[i] = -2;
  if (!EXPECT_EQ(status.message(), "")) return;
  int64_t wrong = 0;
  for (int64_t i = 0; i < own; ++i) {
    uint32_t sum = 0;
    for (int r = 0; r < communicator.size(); ++r) {
      sum += static_cast<uint32_t>(Value(call_number, r, displs[static_cast<size_t>(rank)] + i));
    }
    wrong += output[static_cast<size_t>(i)] != static_cast<int32_t>(sum);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(output[static_cast<size_t>(own)], 0);
  EXPECT_EQ(output[static_cast<size_t>(own) + 1], -1);
}

// `in_place`: the output is x.
void CheckAllReduce(Communicator& communicator, int call_number, bool window, int64_t count,
                    bool in_place) {
  const int rank = communicator.rank();
  Buffer x(communicator, window, count);
  for (int64_t i = 0; i < count; ++i) x.data()[i] = Value(call_number, rank, i);
  std::vector<int32_t> apart(static_cast<size_t>(count) + 1, -1);
  static const collops::Agreement agreement("AllReduce");
  AllReduceCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.count = count;
  call.output = in_place ? x.data() : apart.data();
  const collops::Status status = communicator.AllReduce(call);
  if (!in_place) std::fill(x.data(), x.data() + count, -2);
  if (!EXPECT_EQ(status.message(), "")) return;
  const auto* output = static_cast<const int32_t*>(call.output);
  int64_t wrong = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t sum = 0;
    for (int r = 0; r < communicator.size(); ++r) {
      sum += static_cast<uint32_t>(Value(call_number, r, i));
    }
    wrong += output[i] != static_cast<int32_t>(sum);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(apart[static_cast<size_t>(count)], -1);
}

std::function<void(int, Communicator&)> RandomCalls(int calls) {
  return [calls](int rank, Communicator& communicator) {
    std::mt19937 shared(17);
    std::mt19937 own(static_cast<unsigned>(rank));
    for (int i = 0; i < calls; ++i) {
      const std::vector<int64_t> counts = RandomCounts(&shared, communicator.size());
      const uint32_t kind = shared() % 3;
      if (own() % 16 == 0) usleep(own() % 3000);
      const bool window = own() % 2 == 0;
      if (kind == 0) {
        CheckAllGatherV(communicator, i, window, counts);
      } else if (kind == 1) {
        CheckAllReduce(communicator, i, window, counts[0], own() % 2 == 0);
      } else {
        CheckReduceScatterV(communicator, i, window, counts);
      }
      if (shared() % 16 == 0) EXPECT_EQ(communicator.Barrier().message(), "");
    }
  };
}

}  // namespace

TEST(OneRankAlone) {
  ranks::Run(1, RandomCalls(50));
}
TEST(RandomCallsOf2Ranks) {
  ranks::Run(2, RandomCalls(400));
}
TEST(RandomCallsOf3Ranks) {
  ranks::Run(3, RandomCalls(300));
}
TEST(RandomCallsOf4Ranks) {
  ranks::Run(4, RandomCalls(200));
}
TEST(RandomCallsOf7Ranks) {
  ranks::Run(7, RandomCalls(60));
}

TEST(RandomCallsOf2Threads) {
  ranks::RunThreads(2, RandomCalls(200));
}
TEST(RandomCallsOf4Threads) {
  ranks::RunThreads(4, RandomCalls(100));
}

// One rank's slices for its peers fit into its call record, the other's do not.
TEST(ReduceScatterVWithOneLargeSlice) {
  ranks::Run(2, [](int, Communicator& communicator) {
    for (int i = 0; i < 8; ++i) {
      CheckReduceScatterV(communicator, i, i % 2 == 0, {1000, 5000});
      CheckReduceScatterV(communicator, i, i % 2 == 0, {5000, 0});
    }
  });
  ranks::Run(3, [](int, Communicator& communicator) {
    for (int i = 0; i < 8; ++i) {
      CheckReduceScatterV(communicator, i, i % 2 == 0, {2000, 9000, 2001});
    }
  });
}

TEST(AllReduceOfFewBytesIsOneStep) {
  ranks::Run(3, [](int, Communicator& communicator) {
    uint64_t before = ControlOf(communicator).step_number();
    const auto steps = [&] { return ControlOf(communicator).step_number() - before; };
    CheckAllReduce(communicator, 0, false, 8192, false);
    EXPECT_EQ(steps(), uint64_t{1});
    before = ControlOf(communicator).step_number();
    CheckAllReduce(communicator, 1, false, 8193, false);
    EXPECT_EQ(steps(), uint64_t{2});
  });
}

// One rank's output overwrites its x, while the other one is late.
TEST(AllReduceOf2RanksIsOneStepForMore) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    for (int i = 0; i < 8; ++i) {
      const uint64_t before = ControlOf(communicator).step_number();
      if (i % 4 == rank) usleep(20000);
      CheckAllReduce(communicator, i, i % 2 == 0, 65536, i / 4 == rank);
      EXPECT_EQ(ControlOf(communicator).step_number() - before, uint64_t{1});
      CheckAllReduce(communicator, i, i % 2 == 0, 65537, i / 4 == rank);
      EXPECT_EQ(ControlOf(communicator).step_number() - before, uint64_t{3});
    }
  });
}

TEST(AWindowIsReadInPlaceInEveryCall) {
  ranks::Run(2, [](int rank, Communicator& communicator) {
    constexpr int64_t kCount = 100000;
    std::shared_ptr<Window> window;
    ASSERT_TRUE(communicator.AllocateWindow(kCount * 4, &window).ok());
    auto* x = static_cast<int32_t*>(window->data());
    std::vector<int32_t> output(2 * kCount);
    const int64_t counts[] = {kCount, kCount};
    const int64_t displs[] = {0, kCount};
    static const collops::Agreement agreement("AllGatherV");
    AllGatherVCall call;
    call.agreement = &agreement;
    call.dtype = DType::kInt32;
    call.x = x;
    call.output = output.data();
    call.recv_counts = counts;
    call.rdispls = displs;
    for (int round = 0; round < 5; ++round) {
      for (int64_t i = 0; i < kCount; ++i) x[i] = Value(round, rank, i);
      const uint64_t before = collops::kernels::CopiedBytes();
      EXPECT_EQ(communicator.AllGatherV(call).message(), "");
      // This rank copied each byte of the output once; nothing was staged.
      EXPECT_EQ(collops::kernels::CopiedBytes() - before, 2 * kCount * 4);
      EXPECT_EQ(output[static_cast<size_t>(kCount * (1 - rank))], Value(round, 1 - rank, 0));
      EXPECT_EQ(output[static_cast<size_t>(kCount * (2 - rank)) - 1],
                Value(round, 1 - rank, kCount - 1));
    }
  });
}

TEST(AllocateWindowReplacesTheWindowInItsOutput) {
  const auto communicator = ranks::Make(ranks::FreshJob(), 0, 1);
  std::shared_ptr<collops::Window> window;
  EXPECT_EQ(communicator->AllocateWindow(100, &window).message(), "");
  EXPECT_EQ(communicator->AllocateWindow(200, &window).message(), "");
  EXPECT_TRUE(window->bytes() >= 200);
}

// Inputs that are staged before all ranks have announced the call: after a refused call, and shares
// of every kind, which choose the chunks.
#include <chrono>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <thread>

#include "collops/comm/backends/shm/exchange.h"
#include "faults/ways.h"
#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;
using collops::Status;
using collops::shm::StageShape;

int32_t Value(int call, int rank, int64_t i) {
  return static_cast<int32_t>(call * 7919 + rank * 104729 + i * 31);
}

// One AllGatherV with its own data, of `counts` elements.
void ExpectGathered(Communicator& comm, int number, const std::vector<int64_t>& counts) {
  std::vector<int64_t> displs(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  std::vector<int32_t> x(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = Value(number, comm.rank(), static_cast<int64_t>(i));
  }
  std::vector<int32_t> output(static_cast<size_t>(displs.back() + counts.back()), -1);
  collops::Agreement agreement("AllGatherV");
  agreement.Equal("number", number);
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  call.output = output.data();
  EXPECT_EQ(comm.AllGatherV(call).message(), "");
  std::fill(x.begin(), x.end(), -2);  // a peer that reads it now is too late
  size_t at = 0;
  int64_t wrong = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    for (int64_t i = 0; i < counts[r]; ++i) {
      wrong += output[at++] != Value(number, static_cast<int>(r), i);
    }
  }
  EXPECT_EQ(wrong, 0);
}

// One ReduceScatterV with its own data: a slice of `counts` elements for each rank.
void ExpectScattered(Communicator& comm, int number, const std::vector<int64_t>& counts) {
  std::vector<int64_t> displs(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  std::vector<int32_t> x(static_cast<size_t>(displs.back() + counts.back()));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = Value(number, comm.rank(), static_cast<int64_t>(i));
  }
  const auto rank = static_cast<size_t>(comm.rank());
  std::vector<int32_t> output(static_cast<size_t>(counts[rank]), -1);
  collops::Agreement agreement("ReduceScatterV");
  agreement.Equal("number", number);
  collops::ReduceScatterVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.send_counts = counts.data();
  call.sdispls = displs.data();
  call.output = output.data();
  call.output_count = counts[rank];
  EXPECT_EQ(comm.ReduceScatterV(call).message(), "");
  int64_t wrong = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    int32_t sum = 0;
    for (int r = 0; r < comm.size(); ++r) {
      sum += Value(number, r, displs[rank] + static_cast<int64_t>(i));
    }
    wrong += output[i] != sum;
  }
  EXPECT_EQ(wrong, 0);
}

void OnRanks(int size, const std::function<void(Communicator&)>& body) {
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    pids.push_back(ranks::Start([&, rank] { body(*ranks::Make(job, rank, size)); }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

}  // namespace

// Calls of every kind, small, staged before the announcement, and in several chunks; AllReduce in
// place stages a copy of what it overwrites.
TEST(ARefusedCallOfAnyKindLeavesNoChunksBehind) {
  constexpr int kSize = 3;
  OnRanks(kSize, [](Communicator& comm) {
    int round = 0;
    for (ways::Way way : ways::All()) {
      if (way.call == ways::Fuse || way.call == ways::Pass) continue;
      const bool in_place = way.call == ways::Sum;
      for (const int64_t each : {int64_t{100}, int64_t{4500}, int64_t{15000}, int64_t{200000}}) {
        way.each = each;
        std::vector<int32_t> x(static_cast<size_t>(way.x_elements(kSize)));
        std::vector<int32_t> output(static_cast<size_t>(way.output_elements(kSize)), -1);
        for (int call = 0; call < 4; ++call) {
          way.Fill(comm.rank(), kSize, x.data());
          const std::vector<int32_t> before = in_place ? x : output;
          std::vector<int32_t>& result = in_place ? x : output;
          if (call % 2 == 1) {
            EXPECT_EQ(way.Call(comm, x.data(), result.data()).message(), "");
            EXPECT_EQ(way.Wrong(comm.rank(), kSize, result.data()), 0);
            std::fill(output.begin(), output.end(), -1);
          } else if (comm.rank() == ++round % kSize) {
            (void)comm.Refuse(way.op, collops::Error(collops::ERROR_INVALID_PARAM, "planted"));
          } else {
            const Status status = way.Call(comm, x.data(), result.data());
            EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
            EXPECT_CONTAINS(status.message(), "planted");
            EXPECT_TRUE(result == before);
          }
        }
      }
    }
  });
}

// Where one rank has all or most, chunks are shorter: calls with long and short ones in turn.
TEST(ChunksAreShorterWhereOneRankHasMost) {
  OnRanks(4, [](Communicator& comm) {
    const std::vector<int64_t> lists[] = {
        {0, 5000, 0, 0},   {20000, 0, 0, 0},     {100000, 0, 0, 9000}, {0, 0, 260000, 0},
        {0, 0, 0, 700000}, {50000, 50000, 0, 1}, {90000, 3, 5, 7},     {1, 0, 400000, 0}};
    for (int number = 0; number < 48; ++number) {
      if (number % 5 == comm.rank()) {
        std::this_thread::sleep_for(std::chrono::microseconds(100 * (number % 3)));
      }
      ExpectGathered(comm, number, lists[number % 8]);
      ExpectScattered(comm, 100 + number, lists[(number * 3) % 8]);
    }
  });
}

// The first-level cache of the reader still has the lines of the last call's few bytes.
TEST(FewBytesGoToAnotherSlotInEveryStep) {
  for (const int ranks : {2, 3, 8, 64, 128}) {
    const StageShape lane = StageShape::OneLane();
    for (const StageShape& shape :
         {lane, lane.ForSkew(65536, 65536), StageShape::LanePerPeer(ranks)}) {
      const int64_t bytes = std::min<int64_t>(65536, shape.lane_bytes / 2);
      std::set<int64_t> slots;
      for (uint64_t step = 7; step < 11; ++step) slots.insert(shape.FirstSlot(bytes, step));
      EXPECT_TRUE(slots.size() >= 2);
      EXPECT_EQ(*slots.begin(), 0);
      EXPECT_TRUE((*slots.rbegin() + shape.NumChunks(bytes)) * shape.chunk_bytes <=
                  shape.lane_bytes);
      // The places of two steps do not overlap.
      EXPECT_TRUE(*std::next(slots.begin()) >= shape.NumChunks(bytes));
      EXPECT_EQ(shape.FirstSlot(int64_t{1} << 20, 7), 0);
    }
  }
}

// One rank's slices for its peers fit into its call record, the other's do not.
TEST(ASliceOfOneRankIsLarge) {
  OnRanks(2, [](Communicator& comm) {
    for (int number = 0; number < 8; ++number) {
      ExpectScattered(comm, 2 * number, {1000, 5000});
      ExpectScattered(comm, 2 * number + 1, {5000, 0});
    }
  });
}

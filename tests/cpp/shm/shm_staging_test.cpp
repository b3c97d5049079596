// Inputs that are staged before all ranks have announced the call: after a refused call, and while
// a peer still reads the chunks of the call before.
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;
using collops::Status;

int32_t Value(int call, int rank, int64_t i) {
  return static_cast<int32_t>(call * 7919 + rank * 104729 + i * 31);
}

// One AllGatherV with its own data, of `counts` elements.
Status Gather(Communicator& comm, int number, const std::vector<int64_t>& counts,
              std::vector<int32_t>* output) {
  std::vector<int64_t> displs(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), displs.begin(), int64_t{0});
  std::vector<int32_t> x(static_cast<size_t>(counts[static_cast<size_t>(comm.rank())]));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = Value(number, comm.rank(), static_cast<int64_t>(i));
  }
  output->assign(static_cast<size_t>(displs.back() + counts.back()), -1);
  collops::Agreement agreement("AllGatherV");
  agreement.Equal("number", number);
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt32;
  call.x = x.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  call.output = output->data();
  const Status status = comm.AllGatherV(call);
  std::fill(x.begin(), x.end(), -2);  // a peer that reads it now is too late
  return status;
}

void ExpectGathered(Communicator& comm, int number, const std::vector<int64_t>& counts) {
  std::vector<int32_t> output;
  EXPECT_EQ(Gather(comm, number, counts, &output).message(), "");
  size_t at = 0;
  int64_t wrong = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    for (int64_t i = 0; i < counts[r]; ++i) {
      wrong += output[at++] != Value(number, static_cast<int>(r), i);
    }
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

// For one chunk staged before the announcement, one staged after it, and several chunks.
const std::vector<int64_t> kCounts[] = {
    {6000, 9000}, {30000, 31000}, {600000, 700000}, {100, 9000}};

}  // namespace

// The others had staged their chunks when a rank refused; nobody counts those chunks.
TEST(ARefusedCallLeavesNoChunksBehind) {
  OnRanks(2, [](Communicator& comm) {
    int number = 0;
    for (const auto& counts : kCounts) {
      for (int round = 0; round < 6; ++round) {
        std::vector<int32_t> output;
        if (comm.rank() == round % 2) {
          (void)comm.Refuse("AllGatherV", collops::Error(collops::ERROR_INVALID_PARAM, "planted"));
        } else {
          const Status status = Gather(comm, ++number, counts, &output);
          EXPECT_EQ(status.code(), collops::ERROR_RANK_MISMATCH);
          EXPECT_CONTAINS(status.message(), "planted");
          EXPECT_TRUE(output == std::vector<int32_t>(output.size(), -1));
        }
        ExpectGathered(comm, 1000 + round, counts);
      }
    }
  });
}

// A rank that lags behind reads the last call's chunks, while the others begin the next one.
TEST(TheNextCallDoesNotOverwriteChunksThatAreRead) {
  OnRanks(3, [](Communicator& comm) {
    const std::vector<int64_t> lists[] = {
        {300000, 9000, 0}, {9000, 9000, 9000}, {0, 200, 400000}, {30000, 6000, 100}};
    for (int number = 0; number < 300; ++number) {
      if (number % 7 == comm.rank()) {
        std::this_thread::sleep_for(std::chrono::microseconds(50 * (number % 5)));
      }
      ExpectGathered(comm, number, lists[number % 4]);
    }
  });
}

// Communicator::Split, and communicators of several domains side by side.
#include "comm/registry.h"
#include "ranks.h"

namespace {

using collops::AllGatherVCall;
using collops::Communicator;
using collops::DType;

// Everybody's number, gathered over `communicator`.
std::vector<int64_t> GatherNumbers(Communicator& communicator, int64_t number) {
  std::vector<int64_t> counts(static_cast<size_t>(communicator.size()), 1);
  std::vector<int64_t> displs(counts.size());
  for (size_t r = 0; r < displs.size(); ++r) displs[r] = static_cast<int64_t>(r);
  std::vector<int64_t> output(counts.size(), -1);
  AllGatherVCall call;
  call.dtype = DType::kInt64;
  call.x = &number;
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  EXPECT_EQ(communicator.AllGatherV(call).message(), "");
  return output;
}

void SplitByParity(int rank, Communicator& communicator) {
  std::shared_ptr<Communicator> part;
  // Backwards by key: the highest rank comes first.
  EXPECT_EQ(communicator.Split(rank % 2, -rank, &part).message(), "");
  ASSERT_TRUE(part != nullptr);
  const std::vector<int64_t> want =
      rank % 2 == 0 ? std::vector<int64_t>{4, 2, 0} : std::vector<int64_t>{3, 1};
  EXPECT_EQ(GatherNumbers(*part, rank), want);
  EXPECT_EQ(GatherNumbers(communicator, rank), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(GatherNumbers(*part, rank), want);
}

}  // namespace

TEST(SplitMakesGroupsByColorInTheOrderOfTheKeys) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(5, SplitByParity);
}

TEST(SplitWorksBetweenThreads) {
  const std::string domain = ranks::FreshJob().id;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 5; ++rank) {
    threads.emplace_back([&, rank] {
      collops::CommunicatorSpec spec{"shm", domain, rank, 5, collops::COMM_MULTI_THREAD, 20.0};
      std::shared_ptr<Communicator> communicator;
      ASSERT_TRUE(collops::Registry::Instance().Get(spec, &communicator).ok());
      SplitByParity(rank, *communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ARankMayStayOutOfASplitAndTwoSplitsDoNotMix) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  ranks::Run(3, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> first;
    std::shared_ptr<Communicator> second;
    EXPECT_EQ(communicator.Split(rank == 1 ? -1 : 0, 0, &first).message(), "");
    EXPECT_EQ(communicator.Split(rank == 1 ? -1 : 0, 0, &second).message(), "");
    EXPECT_EQ(first == nullptr, rank == 1);
    if (rank == 1) return;
    EXPECT_TRUE(first.get() != second.get());
    EXPECT_EQ(GatherNumbers(*second, rank), (std::vector<int64_t>{0, 2}));
    EXPECT_EQ(GatherNumbers(*first, rank), (std::vector<int64_t>{0, 2}));
  });
}

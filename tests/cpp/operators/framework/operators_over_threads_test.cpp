// AllGatherV and ReduceScatterV from struct to result, between ranks that are threads.
#include <algorithm>
#include <thread>
#include <vector>

#include "collops/operators/params.h"
#include "operators/framework/operator_call.h"

using namespace collops;

namespace {

constexpr float kPoison = -77;

// Runs `body(rank)` in one thread per rank; returns the results by rank.
template <typename Body>
std::vector<Status> OnRanks(int rank_size, Body body) {
  std::vector<Status> results(static_cast<size_t>(rank_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_size; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

template <typename Param>
Param OfThreads(int rank, int rank_size, const char* domain) {
  Param param;
  param.rank = rank;
  param.rankSize = rank_size;
  param.backend = "shm";
  param.commMode = COMM_MULTI_THREAD;
  param.commDomain = domain;
  return param;
}

template <typename Param>
Status BothPhases(const Param& param, const VariantPack& pack) {
  std::unique_ptr<Operation> operation;
  COLLOPS_RETURN_IF_ERROR(CreateOperation(param, &operation));
  uint64_t bytes = 0;
  const Status planned = operation->GetWorkspaceSize(pack, &bytes);
  if (planned.ok()) return operation->Execute(pack, nullptr, 0, nullptr);
  EXPECT_EQ(operation->Refuse(planned).message(), std::string());
  return planned;
}

// The documented example; another `recv_count` than 2 is an error of rank 1.
Status GatherExample(int rank, const char* domain, int64_t recv_count, std::vector<float>* output) {
  std::vector<float> x = {0, 1, 2, 3, 4, 5, 6, 7};
  if (rank == 1) x = {3, 2, 1, 0, 7, 6, 5, 4, 7, 6, 5, 4};
  int64_t send_count = rank == 0 ? 4 : 2;
  int64_t recv_counts[] = {4, rank == 0 ? 2 : recv_count};
  int64_t rdispls[] = {0, 4};
  uint16_t y[5] = {};
  output->assign(20, kPoison);
  const int64_t rows = static_cast<int64_t>(x.size()) / 4;
  const VariantPack pack = {
      {MakeView(DType::kFloat32, {rows, 4}, x.data()), MakeView(DType::kInt64, {1}, &send_count),
       MakeView(DType::kInt64, {2}, recv_counts), MakeView(DType::kInt64, {2}, rdispls),
       MakeView(DType::kFloat16, {5}, y)},
      {MakeView(DType::kFloat32, {5, 4}, output->data())}};
  return BothPhases(OfThreads<AllGatherVParam>(rank, 2, domain), pack);
}

// x of a rank at position i, different everywhere; at each i another rank has the maximum.
float Value(int rank, int i) {
  return static_cast<float>((i + rank) % 3 * 100 + 10 * rank + i);
}

// Slices of 4, 0 and 5 of the 12 elements; two of them overlap.
Status ScatterExample(int rank, std::vector<float>* output) {
  std::vector<float> x(12);
  for (int i = 0; i < 12; ++i) x[static_cast<size_t>(i)] = Value(rank, i);
  int64_t send_counts[] = {4, 0, 5};
  int64_t sdispls[] = {1, 12, 3};
  int64_t recv_count = send_counts[rank];
  uint16_t y[2] = {};
  const int64_t rows = rank == 1 ? 0 : 2;
  output->assign(static_cast<size_t>(rows) * 3, kPoison);
  const VariantPack pack = {
      {MakeView(DType::kFloat32, {4, 3}, x.data()), MakeView(DType::kInt64, {3}, send_counts),
       MakeView(DType::kInt64, {3}, sdispls), MakeView(DType::kInt64, {1}, &recv_count),
       MakeView(DType::kFloat16, {rows}, y)},
      {MakeView(DType::kFloat32, {rows, 3}, output->data())}};
  auto param = OfThreads<ReduceScatterVParam>(rank, 3, "operators_over_threads_test scatter");
  param.reduceType = "max";
  return BothPhases(param, pack);
}

}  // namespace

TEST(TheWorkedExample) {
  std::vector<float> outputs[2];
  const auto statuses = OnRanks(2, [&](int rank) {
    return GatherExample(rank, "operators_over_threads_test gather", 2, &outputs[rank]);
  });
  std::vector<float> want = {0, 1, 2, 3, 3, 2};
  want.resize(20, 0);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(statuses[rank].message(), std::string());
    EXPECT_EQ(outputs[rank], want);
  }
}

TEST(MaximumOfUnevenSlices) {
  std::vector<float> outputs[3];
  const auto statuses = OnRanks(3, [&](int rank) { return ScatterExample(rank, &outputs[rank]); });
  for (const Status& status : statuses) EXPECT_EQ(status.message(), std::string());
  const auto maximum = [](int i) { return std::max({Value(0, i), Value(1, i), Value(2, i)}); };
  EXPECT_EQ(outputs[0], (std::vector<float>{maximum(1), maximum(2), maximum(3), maximum(4), 0, 0}));
  EXPECT_TRUE(outputs[1].empty());
  EXPECT_EQ(outputs[2],
            (std::vector<float>{maximum(3), maximum(4), maximum(5), maximum(6), maximum(7), 0}));
}

TEST(ARefusedCallLeavesTheCommunicatorGood) {
  const char* domain = "operators_over_threads_test refusal";
  std::vector<float> outputs[2];
  auto statuses =
      OnRanks(2, [&](int rank) { return GatherExample(rank, domain, 90, &outputs[rank]); });
  ExpectStatus(statuses[1], ERROR_INVALID_TENSOR_DIM, "AllGatherV: block 1");
  ExpectStatus(statuses[0], ERROR_RANK_MISMATCH, statuses[1].message());
  EXPECT_EQ(outputs[0], std::vector<float>(20, kPoison));
  statuses = OnRanks(2, [&](int rank) { return GatherExample(rank, domain, 2, &outputs[rank]); });
  for (const Status& status : statuses) EXPECT_EQ(status.message(), std::string());
}

// What Control and the operators add to any backend: barriers, Share(), subgroups, products.
#pragma once

#include "conformance/ground.h"
#include "conformance/numbers.h"
#include "operators/linear_parallel/linear_call.h"

namespace conformance {

inline void Barriers(int, int, Communicator& comm) {
  for (int i = 0; i < 20; ++i) {
    ++Shared().counters[i];
    EXPECT_EQ(Made(comm, [&] { return comm.Barrier(); }).message(), "");
    EXPECT_EQ(Shared().counters[i].load(), comm.size());
  }
}

inline void ShareBytes(int rank, int, Communicator& comm) {
  const int64_t piece = control::kShareBytes;
  int round = 0;
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, piece - 1, piece, piece + 1, 3 * piece + 5}) {
    const Bytes mine = Data(rank, ++round, 0, bytes);
    Bytes all(static_cast<size_t>(bytes * comm.size() + 1), kPoison);
    Bytes want = all;
    for (int r = 0; r < comm.size(); ++r) Put(Data(r, round, 0, bytes), r * bytes, &want);
    const Agreement agreement("Share");
    const auto share = [&] { return comm.Share(agreement, mine.data(), bytes, all.data()); };
    EXPECT_EQ(Made(comm, share).message(), "");
    EXPECT_TRUE(all == want);
  }
}

// Gathers one number of each rank.
inline List GatherNumbers(int64_t number, Communicator& comm) {
  const List counts(At(comm.size()), 1);
  const List displs = Displacements(counts, false, 0);
  List output(counts.size(), -1);
  const Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = &number;
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  EXPECT_EQ(Made(comm, [&] { return comm.AllGatherV(call); }).message(), "");
  return output;
}

// Splits by parity, in reverse order by key; then again with a rank that stays out.
inline void SplitInTwo(int rank, int, Communicator& comm) {
  std::shared_ptr<Communicator> part;
  EXPECT_EQ(Made(comm, [&] { return comm.Split(rank % 2, -rank, &part); }).message(), "");
  ASSERT_TRUE(part != nullptr);
  List want;
  for (int r = comm.size() - 1; r >= 0; --r) {
    if (r % 2 == rank % 2) want.push_back(r);
  }
  EXPECT_EQ(GatherNumbers(rank, *part), want);
  EXPECT_EQ(GatherNumbers(rank, comm).size(), At(comm.size()));
  EXPECT_EQ(GatherNumbers(rank + 100, *part).front(), want.front() + 100);
  std::shared_ptr<Communicator> rest;
  EXPECT_EQ(Made(comm, [&] { return comm.Split(rank == 0 ? -1 : 0, 0, &rest); }).message(), "");
  EXPECT_EQ(rest == nullptr, rank == 0);
  if (rest != nullptr) EXPECT_EQ(GatherNumbers(7, *rest), List(At(comm.size() - 1), 7));
}

using LinearParam = LinearParallelParam;

// A case of each type for a group of that size.
inline std::vector<linear_call::Case> LinearCases(int size) {
  if (size == 1) return {{LinearParam::PURE_LINEAR, 1, 1, true, {}, {}, 9, 70, 300, true, true}};
  List gather;
  List scatter;
  int64_t rows = 0;
  for (int r = 0; r < size; ++r) {
    gather.push_back((r * 5 + 3) % 11);
    scatter.push_back((r * 7) % 13);
    rows += scatter.back();
  }
  std::vector<linear_call::Case> cases = {
      {LinearParam::LINEAR_ALL_REDUCE, 1, size, true, {}, {}, 11, 70, 300, true, true},
      {LinearParam::LINEAR_REDUCE_SCATTER, 1, size, true, {}, {scatter}, rows, 65, 400, true, true},
      {LinearParam::ALL_GATHER_LINEAR, size, 1, true, {gather}, {}, 0, 130, 80, false, true},
  };
  cases.back().gathered = true;
  for (const bool inner_is_ag : {true, false}) {
    if (size != 4) break;
    cases.push_back({LinearParam::ALL_GATHER_LINEAR_REDUCE_SCATTER,
                     2,
                     2,
                     inner_is_ag,
                     {{5, 6}, {11, 0}},
                     {{4, 7}, {2, 9}},
                     0,
                     64,
                     385,
                     false,
                     inner_is_ag});
  }
  return cases;
}

inline void LinearByPipeline(int rank, int, Communicator& comm) {
  if (comm.device().kind != DeviceKind::kCpu) return;
  for (const linear_call::Case& c : LinearCases(comm.size())) {
    linear_call::Outputs got;
    const auto run = [&] { return linear_call::Run(c, {true, &kPipeline, false}, &comm, &got); };
    EXPECT_EQ(Made(comm, run).message(), "");
    EXPECT_TRUE(got.output == linear_call::Expected(c, rank));
    if (c.gathered) EXPECT_TRUE(got.gathered == linear_call::Gathered(c, true, rank));
  }
}

inline std::vector<Case> GroupCases() {
  const std::vector<int> sizes = {1, 2, 3, 4, 7};
  return {
      {"Barrier", sizes, 1, 60, Barriers},
      {"Share", sizes, 1, 60, ShareBytes},
      {"Split", {2, 3, 4, 7}, 1, 60, SplitInTwo},
      {"LinearParallel", sizes, 1, 60, LinearByPipeline},
  };
}

}  // namespace conformance

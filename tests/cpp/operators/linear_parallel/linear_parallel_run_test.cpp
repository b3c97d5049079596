// LinearParallel between threads, so that TSan can see all of them: fused and as a pipeline,
// against a plain loop on exact data, and against each other, bit for bit, on random data.
// Processes and all types: tests/conformance.

#include "operators/linear_parallel/linear_call.h"

namespace collops {
namespace {

using linear_call::Case;
using linear_call::Expected;
using linear_call::Gathered;
using linear_call::kType0;
using linear_call::kType1;
using linear_call::kType2;
using linear_call::kType4;
using linear_call::NumRanks;
using linear_call::Outputs;
using linear_call::Param;

Case Of(DType dtype, Case c) {
  c.dtype = dtype;
  c.gathered = c.type == Param::ALL_GATHER_LINEAR;
  return c;
}

Case InLeaves(int leaves, Case c) {
  c.leaves = leaves;
  return c;
}

std::vector<Case> Cases() {
  const std::vector<std::vector<int64_t>> gather = {{5, 6}, {11, 0}}, scatter = {{4, 7}, {2, 9}};
  const std::vector<std::vector<int64_t>> far_gather = {{300, 20}, {20, 300}};
  const std::vector<std::vector<int64_t>> far_scatter = {{160, 160}, {250, 70}};
  return {
      {kType0, 1, 3, true, {}, {}, 11, 70, 1000, true, true},
      // More strips than ranks, in tiles that are written again, and fewer.
      {kType0, 1, 3, true, {}, {}, 300, 9, 3000, true, true},
      Of(DType::kBFloat16, {kType0, 1, 4, true, {}, {}, 1, 40, 4000, true, false}),
      {kType0, 1, 4, true, {}, {}, 7, 40, 700, false, false},
      {kType0, 1, 3, true, {}, {}, 0, 5, 6, true, true},
      {kType1, 1, 3, true, {}, {{0, 7, 4}}, 11, 65, 400, true, true},
      {kType2, 4, 1, true, {{9, 0, 1, 40}}, {}, 0, 1030, 500, false, false},
      {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 513, 900, true, true},
      {kType4, 2, 2, false, gather, scatter, 0, 64, 385, false, false},
      {kType4, 2, 2, true, {{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, 0, 5, 6, true, true},
      // Long enough for the stage, and more rows than one part holds.
      {kType4, 2, 2, true, far_gather, far_scatter, 0, 1500, 40, true, false},
      // The stage in parts of some columns of few rows, with few rows in all and with many.
      Of(DType::kBFloat16, {kType2, 2, 1, true, {{50, 47}}, {}, 0, 7000, 5, true, true}),
      Of(DType::kFloat16, {kType2, 2, 1, true, {{30, 26}}, {}, 0, 7000, 5, false, false}),
      Of(DType::kFloat32, {kType2, 2, 1, true, {{30, 26}}, {}, 0, 70000, 5, true, false}),
      // Leaves that are no whole subtrees, so that ranks have several sums, and other numbers.
      InLeaves(9, {kType0, 1, 3, true, {}, {}, 11, 69, 1000, true, true}),
      InLeaves(12, {kType0, 1, 4, true, {}, {}, 30, 66, 3900, true, true}),
      InLeaves(6, {kType4, 2, 2, false, gather, scatter, 0, 66, 385, false, true}),
      InLeaves(10, {kType4, 2, 2, true, far_gather, far_scatter, 0, 1500, 40, true, false}),
      InLeaves(5,
               Of(DType::kBFloat16, {kType2, 2, 1, true, {{50, 47}}, {}, 0, 7000, 5, true, true})),
  };
}

void CheckCase(const Case& c, int rank, Communicator* comm) {
  Outputs got;
  Outputs random;
  for (const bool window : {false, true}) {
    for (const Engine* engine : {&kWindows, &kPipeline}) {
      EXPECT_EQ(Run(c, {true, engine, window}, comm, &got).message(), "");
      EXPECT_TRUE(got.output == Expected(c, rank));
      if (c.gathered) EXPECT_TRUE(got.gathered == Gathered(c, true, rank));
    }
  }
  EXPECT_EQ(Run(c, {false, &kWindows, true}, comm, &random).message(), "");
  for (const Engine* engine : {&kWindows, &kPipeline}) {
    EXPECT_EQ(Run(c, {false, engine, false}, comm, &got).message(), "");
    EXPECT_TRUE(got.output == random.output);
    EXPECT_TRUE(got.gathered == random.gathered);
  }
}

// One communicator for other shapes, types and tile sizes, one after the other.
TEST(EveryTypeAndGridOnOneCommunicator) {
  for (const int size : {2, 3, 4}) {
    linear_call::NameTheJob();
    ranks::RunThreads(size, [&](int rank, Communicator& comm) {
      for (const Case& c : Cases()) {
        if (NumRanks(c) == size) CheckCase(c, rank, &comm);
      }
    });
  }
}

}  // namespace
}  // namespace collops

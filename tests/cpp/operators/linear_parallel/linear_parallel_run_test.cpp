// LinearParallel over processes and threads: fused and as a pipeline, against a plain loop on exact
// data, and against each other, bit for bit, on random data.

#include "operators/linear_parallel/linear_call.h"

namespace collops {
namespace {

using linear_call::Case;
using linear_call::Expected;
using linear_call::Gathered;
using linear_call::How;
using linear_call::NameTheJob;
using linear_call::NumRanks;
using linear_call::Outputs;
using linear_call::Param;

std::vector<Case> Cases() {
  const auto kType0 = Param::LINEAR_ALL_REDUCE;
  const auto kType1 = Param::LINEAR_REDUCE_SCATTER;
  const auto kType2 = Param::ALL_GATHER_LINEAR;
  const auto kType4 = Param::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  return {
      {kType0, 1, 3, true, {}, {}, 11, 70, 1000, true, true},
      {kType1, 1, 2, true, {}, {{3, 5}}, 8, 300, 800, false, false},
      {kType1, 1, 3, true, {}, {{0, 7, 4}}, 11, 65, 400, true, true},
      {kType2, 2, 1, true, {{3, 5}}, {}, 0, 300, 800, true, true},
      {kType2, 4, 1, true, {{9, 0, 1, 40}}, {}, 0, 1030, 500, false, false},
      {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 513, 900, true, true},
      {kType4, 2, 2, false, {{5, 6}, {11, 0}}, {{4, 7}, {2, 9}}, 0, 64, 385, false, false},
      {kType4,
       3,
       2,
       true,
       {{5, 6, 2}, {1, 10, 2}},
       {{4, 9}, {13, 0}, {6, 7}},
       0,
       40,
       1,
       true,
       false},
      {kType4,
       3,
       2,
       false,
       {{5, 6, 2}, {1, 10, 2}},
       {{4, 9}, {13, 0}, {6, 7}},
       0,
       3,
       777,
       true,
       true},
      {kType4, 1, 3, true, {{6}, {6}, {6}}, {{1, 2, 3}}, 0, 9, 9, true, false},
      {kType4, 3, 1, true, {{1, 2, 3}}, {{6}, {6}, {6}}, 0, 9, 9, true, false},
      // Long enough for the stage, and more rows than one part holds.
      {kType4,
       2,
       2,
       true,
       {{300, 20}, {20, 300}},
       {{160, 160}, {250, 70}},
       0,
       1500,
       40,
       true,
       false},
      {kType2, 2, 1, true, {{30, 26}}, {}, 0, 70000, 5, true, false},
      {kType4, 2, 2, true, {{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, 0, 5, 6, true, true},
  };
}

// The stage in parts of some columns of few rows, with few rows in all and with many, and each
// rank's own rows; the gathered x too.
std::vector<Case> DTypeCases(DType dtype) {
  const int64_t long_row = 14000 / SizeOf(dtype);
  Case many = {Param::ALL_GATHER_LINEAR, 2, 1, true, {{50, 47}}, {}, 0, long_row, 5, true, true};
  Case few = {Param::ALL_GATHER_LINEAR, 2, 1, true, {{30, 26}}, {}, 0, long_row, 5, false, false};
  Case grid = {Param::ALL_GATHER_LINEAR_REDUCE_SCATTER,
               2,
               2,
               false,
               {{150, 20}, {20, 150}},
               {{80, 90}, {150, 20}},
               0,
               1501,
               7,
               true,
               true};
  Case strips = {
      Param::LINEAR_REDUCE_SCATTER, 1, 3, true, {}, {{0, 7, 4}}, 11, 65, 900, true, true};
  many.gathered = few.gathered = true;
  many.dtype = few.dtype = grid.dtype = strips.dtype = dtype;
  return {many, few, grid, strips};
}

int Wrong(const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  EXPECT_EQ(got.size(), want.size());
  int wrong = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) wrong += got[i] == want[i] ? 0 : 1;
  return wrong;
}

void CheckCase(const Case& c, int rank, Communicator* comm) {
  Outputs got;
  Outputs random;
  const std::vector<std::byte> expected = Expected(c, rank);
  for (const bool window : {false, true}) {
    for (const Engine* engine : {&kWindows, &kPipeline}) {
      EXPECT_EQ(Run(c, {true, engine, window}, comm, &got).message(), "");
      EXPECT_EQ(Wrong(got.output, expected), 0);
      if (c.gathered) EXPECT_EQ(Wrong(got.gathered, Gathered(c, true, rank)), 0);
    }
  }
  EXPECT_EQ(Run(c, {false, &kWindows, true}, comm, &random).message(), "");
  for (const Engine* engine : {&kWindows, &kPipeline}) {
    EXPECT_EQ(Run(c, {false, engine, false}, comm, &got).message(), "");
    EXPECT_TRUE(got.output == random.output);
    EXPECT_TRUE(got.gathered == random.gathered);
  }
}

TEST(EveryTypeAndGridOverProcesses) {
  for (const Case& c : Cases()) {
    NameTheJob();
    ranks::Run(NumRanks(c), [&](int rank, Communicator& comm) { CheckCase(c, rank, &comm); });
  }
}

TEST(EveryTypeAndGridOverThreads) {
  for (const Case& c : Cases()) {
    NameTheJob();
    ranks::RunThreads(NumRanks(c),
                      [&](int rank, Communicator& comm) { CheckCase(c, rank, &comm); });
  }
}

TEST(EveryDTypeInPartsOfRowsAndColumns) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const Case& c : DTypeCases(dtype)) {
      NameTheJob();
      ranks::Run(NumRanks(c), [&](int rank, Communicator& comm) { CheckCase(c, rank, &comm); });
    }
  }
}

// One communicator, other shapes, types and tile sizes from call to call.
TEST(ShapesAlternateOnOneCommunicator) {
  std::vector<Case> cases;
  for (const Case& c : Cases()) {
    if (NumRanks(c) == 4) cases.push_back(c);
  }
  NameTheJob();
  ranks::Run(4, [&](int rank, Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      for (const Case& c : cases) CheckCase(c, rank, &comm);
    }
  });
}

}  // namespace
}  // namespace collops

// The engine kStreams on fake devices: every type against a plain loop, in every order that marks
// allow, and with one wait left out, which must be found. Its cuts: linear_parallel_schedule_test.

#include "operators/linear_parallel/stream_call.h"
#include "sanitized.h"

namespace collops {
namespace {

using linear_call::Case;
using linear_call::Chunks;
using linear_call::kType0;
using linear_call::kType1;
using linear_call::kType2;
using linear_call::kType3;
using linear_call::kType4;
using linear_call::Param;
using stream_call::How;
using stream_call::Job;
using stream_call::RankResult;
using stream_call::Result;
using stream_queues::kOrders;
using stream_queues::Order;

constexpr Order kExtremes[] = {Order::kCallersFirst, Order::kSideFirst};

void Check(const Job& job, const How& how) {
  const Result result = stream_call::Run(job, how);
  EXPECT_TRUE(result.right());
  EXPECT_EQ(result.complaints.size(), size_t{0});
  for (const RankResult& rank : result.ranks) {
    EXPECT_EQ(rank.right.size(), rank.statuses.size());
    for (const Status& status : rank.statuses) EXPECT_EQ(status.message(), "");
    EXPECT_EQ(rank.late_tasks, size_t{0});
  }
}

// Two calls with the same tensors and workspace, in every order, with float32 products of 16-bit
// operands and without.
void CheckTwice(const Case& c) {
  const Job job = stream_call::MakeJob(c, 2);
  for (const Order order : kOrders) {
    Check(job, {order});
    if (c.dtype != DType::kFloat32) Check(job, {order, {false}});
  }
  // A device that is larger than the matrix: all in one product.
  Check(job, {Order::kMixed, {true, -1, int64_t{1} << 40}});
}

// One call of rank 0 with that many chunks and strips.
void CheckCut(const Case& c, size_t chunks, size_t strips, bool has_float_sums = true) {
  const Job job = stream_call::MakeJob(c, 1);
  // A sanitizer, with which this takes minutes, sees all it can in one order.
  for (const Order order : kExtremes) {
    if (!kSanitized || order == kExtremes[0]) Check(job, {order, {has_float_sums}});
  }
  const Result result = stream_call::Run(job, {Order::kMixed, {has_float_sums}});
  EXPECT_TRUE(result.right());
  EXPECT_EQ(result.ranks[0].chunks, chunks);
  EXPECT_EQ(result.ranks[0].strips, strips);
}

// A matrix in one piece, for every type: uneven rows, ranks without rows, one rank for all rows.
std::vector<Case> SmallCases() {
  return {
      {kType0, 1, 3, true, {}, {}, 11, 7, 10, true, true},
      {kType1, 1, 2, true, {}, {{3, 5}}, 8, 3, 8, false, false},
      {kType1, 1, 3, true, {}, {{0, 7, 4}}, 11, 6, 40, true, true},
      {kType1, 1, 3, true, {}, {{0, 11, 0}}, 11, 6, 300, false, true},
      {kType2, 2, 1, true, {{3, 5}}, {}, 0, 30, 8, true, true},
      {kType2, 4, 1, true, {{9, 0, 1, 40}}, {}, 0, 13, 5, false, false},
      {kType3, 1, 2, true, {}, {}, 5, 4, 3, true, true},
      {kType3, 1, 1, true, {}, {}, 5, 4, 3, false, false},
      {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 13, 9, true, true},
      {kType4, 2, 2, false, {{5, 6}, {11, 0}}, {{4, 7}, {2, 9}}, 0, 64, 3, false, false},
      {kType4, 1, 3, true, {{6}, {6}, {6}}, {{1, 2, 3}}, 0, 9, 9, true, false},
      {kType4, 3, 1, true, {{1, 2, 3}}, {{6}, {6}, {6}}, 0, 9, 9, true, false},
      {kType4,
       3,
       2,
       true,
       {{5, 6, 2}, {1, 10, 2}},
       {{4, 9}, {13, 0}, {6, 7}},
       0,
       4,
       1,
       true,
       false},
  };
}

TEST(EveryTypeInEveryOrder) {
  for (Case c : SmallCases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
      c.dtype = dtype;
      for (const bool gathered : {false, true}) {
        c.gathered = gathered && c.type == kType2;
        CheckTwice(c);
      }
    }
  }
}

// The inner dimension is 0: products are zeros, and the residual is added.
TEST(ProductsOfNothingAreZeros) {
  for (Case c : SmallCases()) {
    c.k = 0;
    c.gathered = c.type == kType2;
    for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
      c.dtype = dtype;
      CheckTwice(c);
    }
  }
}

TEST(NoRowsAndNoColumns) {
  for (Case c : SmallCases()) {
    c.n = 0;
    c.gathered = c.type == kType2;
    CheckTwice(c);
    c.dtype = DType::kFloat16;
    CheckTwice(c);
  }
  for (const bool residual : {false, true}) {
    CheckTwice({kType0, 1, 2, true, {}, {}, 0, 5, 6, true, residual});
    CheckTwice({kType1, 1, 2, true, {}, {{0, 0}}, 0, 5, 6, true, residual});
    CheckTwice({kType2, 2, 1, true, {{0, 0}}, {}, 0, 5, 6, true, residual});
    CheckTwice({kType3, 1, 1, true, {}, {}, 0, 5, 6, true, residual});
    CheckTwice({kType4, 2, 2, true, {{0, 0}, {0, 0}}, {{0, 0}, {0, 0}}, 0, 5, 6, true, residual});
  }
}

// 8200 floats are 32 KiB: a tile of 16 MiB has 256 columns.
Case Strips(Param::ParallelType type) {
  Case c = {type, 1, 2, true, {}, {}, 8200, 2, 600, true, true};
  if (type == kType1) c.scatter = {{8000, 200}};
  return c;
}

TEST(RowsArriveInChunks) {
  Case c = Chunks();
  CheckCut(c, 2, 1);
  c.gather = {{10, 0, 1}};
  c.trans_weight = c.residual = false;
  c.gathered = true;
  c.dtype = DType::kBFloat16;
  CheckCut(c, 2, 1);
  c.residual = true;
  CheckCut(c, 2, 1, false);
}

TEST(ColumnsAreSummedInStrips) {
  CheckCut(Strips(kType0), 0, 3);
  Case c = Strips(kType1);
  CheckCut(c, 0, 3);
  c.dtype = DType::kFloat16;
  c.trans_weight = c.residual = false;
  CheckCut(c, 0, 3, false);
  c.k = 0;
  CheckCut(c, 0, 3);
}

TEST(ChunksAndStripsOfAGrid) {
  Case c = {kType4, 2, 2, true, {{4, 1}, {0, 5}}, {{5, 0}, {1, 4}}, 0, 700001, 2, false, false};
  CheckCut(c, 2, 1);
  c.gather = {{8200, 30}, {30, 8200}};
  c.scatter = {{8230, 0}, {4000, 4230}};
  c.k = 2;
  c.n = 300;
  c.residual = true;
  CheckCut(c, 1, 2);
}

// Of two calls that are multiplied one after the other no part runs beside another.
TEST(ASmallCallIsOneProductOnOneStream) {
  const Case c = {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 13, 9, true, true};
  const Result result =
      stream_call::Run(stream_call::MakeJob(c, 1), {Order::kMixed, {true, -1, 1000}});
  EXPECT_TRUE(result.right());
  for (const RankResult& rank : result.ranks) EXPECT_EQ(rank.num_waits, 0);
  EXPECT_EQ(result.ranks[0].num_steps, 2);  // the product, and the sum's rounding
}

// All ranks are threads on one device: its collectives would take their places from its products.
TEST(RanksOfADeviceRunOneCallAfterTheOther) {
  const DeviceShare share = {8, true, 132, 32};
  Case grid = {kType4, 2, 2, true, {{4, 1}, {0, 5}}, {{5, 0}, {1, 4}}, 0, 700001, 2, false, false};
  for (const Case& c : {Chunks(), Strips(kType0), Strips(kType1), grid}) {
    const Job job = stream_call::MakeJob(c, 2);
    for (const Order order : kExtremes) Check(job, {order, {true, -1, 4, share}});
    const Result result = stream_call::Run(job, {Order::kMixed, {true, -1, 4, share}});
    for (const RankResult& rank : result.ranks) EXPECT_EQ(rank.num_waits, 0);
    EXPECT_TRUE(stream_call::Run(job, {}).ranks[0].num_waits > 0);
  }
}

// The numbers of the waits without which some order gives a wrong result or ends too early.
std::vector<int> NeededWaits(const Case& c) {
  const Job job = stream_call::MakeJob(c, 1);
  const int num_waits = stream_call::Run(job, {}).ranks[0].num_waits;
  std::vector<int> needed;
  for (int wait = 0; wait < num_waits; ++wait) {
    const bool found = std::any_of(std::begin(kExtremes), std::end(kExtremes), [&](Order order) {
      const Result result = stream_call::Run(job, {order, {true, wait}});
      return !result.right() || result.ranks[0].late_tasks > 0;
    });
    if (found) needed.push_back(wait);
  }
  return needed;
}

// The first wait is the side stream's for the inputs. Where they are multiplied before anything is
// on the side stream, the next waits cover it. All others are needed, also the caller's at the end.
TEST(AMissingWaitIsFound) {
  if (kSanitized) return;  // minutes, in which no new code runs
  EXPECT_EQ(NeededWaits(Chunks()), (std::vector<int>{0, 1, 2, 3}));
  for (const auto type : {kType0, kType1}) {
    EXPECT_EQ(NeededWaits(Strips(type)), (std::vector<int>{1, 2, 3, 4}));
  }
  Case c = Chunks();
  c.n = 0;
  c.gathered = true;
  EXPECT_TRUE(NeededWaits(c).empty());  // on one stream there are none
}

// What is on the side stream uses the caller's tensors, also if a later step is refused.
TEST(AfterAnErrorTheCallerWaitsForTheSideStream) {
  for (const Case& c : {Chunks(), SmallCases()[8], Strips(kType1)}) {
    const Job job = stream_call::MakeJob(c, 1);
    for (const Order order : kExtremes) {
      const Result result = stream_call::Run(job, {order, {}, 1});
      EXPECT_TRUE(result.ended);
      EXPECT_EQ(result.complaints.size(), size_t{0});
      for (const RankResult& rank : result.ranks) {
        EXPECT_EQ(rank.statuses[0].code(), ERROR_HCCL_FAIL);
        EXPECT_CONTAINS(rank.statuses[0].message(), "the collective failed");
        EXPECT_EQ(rank.right.size(), size_t{1});
        EXPECT_EQ(rank.late_tasks, size_t{0});
      }
    }
  }
}

}  // namespace
}  // namespace collops

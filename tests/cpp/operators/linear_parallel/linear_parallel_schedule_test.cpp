// How a product on a device is cut into gathers, products and strips, and which of its schedules is
// expected to be the faster one. What comes out on streams: tests/devices.

#include <cmath>

#include "operators/framework/recording_communicator.h"
#include "operators/linear_parallel/linear_call.h"

namespace collops {
namespace {

using linear_call::Case;
using linear_call::Chunks;
using linear_call::Desc;
using linear_call::kType0;
using linear_call::kType1;
using linear_call::kType2;
using linear_call::kType4;
using linear_call::Param;

// A device that works on so many elements at a time. Nothing runs on it.
class Device : public kernels::StreamCompute {
 public:
  explicit Device(int64_t at_once) : at_once_(at_once) {}
  Status Available() override { return Ok(); }
  Status OnDevice(const std::function<Status()>& work) override { return work(); }
  int64_t elements_at_once() const override { return at_once_; }
  int64_t alignment() const override { return 512; }
  Status ScratchBytes(const kernels::StreamStep& /*step*/, int64_t* bytes) override {
    *bytes = 0;
    return Ok();
  }
  Status Run(const kernels::StreamStep&, void*, int64_t, void*) override { return Ok(); }
  Status SetZero(void*, int64_t, void*) override { return Ok(); }
  Status Copy(void*, const void*, int64_t, void*) override { return Ok(); }
  Status SideStream(void** /*stream*/) override { return Ok(); }
  std::shared_ptr<kernels::StreamMarks> NewMarks() override { return nullptr; }

 private:
  const int64_t at_once_;
};

// Ranks that are threads have a longer tile where they work in turn.
class Threads : public RecordingCommunicator {
 public:
  using RecordingCommunicator::RecordingCommunicator;
  DeviceShare device_share() const override { return {8, true, 132, 32}; }
};

// A rank's call, planned for streams.
struct Planned {
  Planned(const Case& c, int rank, int64_t at_once)
      : device(at_once), communicator(rank, linear_call::NumRanks(c)) {
    std::vector<TensorDesc> inputs = {Desc(c.dtype, {linear_call::RowsOf(c, rank), c.k}),
                                      Desc(c.dtype, {c.n, c.k})};
    if (c.residual) inputs.push_back(Desc(c.dtype, {c.n}));
    plan.rank_size = linear_call::NumRanks(c);
    EXPECT_EQ(MakeLinearLayout(linear_call::MakeParam(c, rank), rank, plan.rank_size, inputs,
                               &plan.layout)
                  .message(),
              "");
    plan.dtype = c.dtype;
    plan.stream_compute = &device;
    plan.communicator = &communicator;
    plan.has_residual = c.residual;
    plan.engine = &kStreams;
    EXPECT_EQ(PlanLinear(&plan).message(), "");
  }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;

  // "own 3+5" and "0: 3+5": rows [3, 8) of this rank, and of chunk 0.
  std::string Pieces() const {
    std::string text;
    for (const RowPiece& piece : plan.schedule->pieces) {
      const std::string chunk = piece.chunk == RowPiece::kInX ? "own " : Concat(piece.chunk, ": ");
      text += Concat(text.empty() ? "" : ", ", chunk, piece.begin, "+", piece.rows);
    }
    return text;
  }
  // Of its strips.
  std::vector<int64_t> Columns() const {
    std::vector<int64_t> columns;
    for (const ColumnStrip& strip : plan.schedule->strips) columns.push_back(strip.columns);
    return columns;
  }

  Device device;
  Threads communicator;
  LinearPlan plan;
};

std::string Pieces(const Case& c, int rank, int64_t at_once) {
  return Planned(c, rank, at_once).Pieces();
}

// The times of 8 ranks as threads on an H200, K = N = 8192, bfloat16, in us.
StreamTimes OnAnH200(Param::ParallelType type, int64_t rows) {
  const std::vector<int64_t> of_ranks(8, rows / 8);
  Case c = {type, 1, 8, true, {}, {of_ranks}, rows, 8192, 8192, true, false};
  if (type == kType2) c = {type, 8, 1, true, {of_ranks}, {}, 0, 8192, 8192, true, false};
  c.dtype = DType::kBFloat16;
  const Planned planned(c, 3, int64_t{1} << 21);
  const DeviceShare share = {8, false, 132, 32};
  // On a device of its own a rank overlaps what it can.
  EXPECT_EQ(&ChooseSchedule(planned.plan, share), planned.plan.in_turn.get());
  EXPECT_EQ(&ChooseSchedule(planned.plan, {1, false, 132, 4}), planned.plan.schedule.get());
  return ModelTimes(planned.plan, share);
}

}  // namespace

TEST(OwnRowsAreMultipliedFirstAndNeighboursTogether) {
  const Case c = {kType2, 4, 1, true, {{5, 6, 0, 7}}, {}, 0, 3, 10, true, false};
  EXPECT_EQ(Pieces(c, 1, 40), "own 5+6, 0: 0+5, 0: 11+7");
  EXPECT_EQ(Pieces(c, 0, 40), "own 0+5, 0: 5+13");
  EXPECT_EQ(Pieces(c, 2, 40), "0: 0+18");
  EXPECT_EQ(Pieces(c, 1, 41), "0: 0+18");  // 4 rows on average
  Case chunks = Chunks();
  EXPECT_EQ(Pieces(chunks, 0, 4), "own 0+4, 0: 4+2, 1: 6+1");
  EXPECT_EQ(Pieces(chunks, 1, 4), "0: 0+2, 0: 4+2, 1: 2+2, 1: 6+1");
  EXPECT_EQ(Pieces(chunks, 0, 5), "0: 0+7");
  chunks.gather = {{5, 0, 4}};  // 2 chunks of 3 rows at most, and not one of 1
  EXPECT_EQ(Pieces(chunks, 0, 4), "own 0+5, 0: 5+3, 1: 8+1");
}

// 8200 floats are 32 KiB: a tile of 16 MiB has 256 columns. On a grid the first strip waits for
// rows.
TEST(ColumnsAreSummedInStrips) {
  const Case sums = {kType0, 1, 2, true, {}, {}, 8200, 2, 600, true, true};
  EXPECT_EQ(Planned(sums, 0, 4).Columns(), (std::vector<int64_t>{256, 256, 88}));
  Case c = {kType4, 2,    2,    true, {{8000, 200}, {200, 8000}}, {{8000, 200}, {8000, 200}}, 0,
            1,      1500, true, false};
  EXPECT_EQ(Planned(c, 0, 4).Columns(), (std::vector<int64_t>{512, 256, 256, 256, 220}));
  c.n = 600;
  EXPECT_EQ(Planned(c, 0, 4).Columns(), (std::vector<int64_t>{512, 88}));
  c.n = 300;
  EXPECT_EQ(Planned(c, 0, 4).Columns(), (std::vector<int64_t>{256, 44}));
}

TEST(ASmallCallIsOneProductOnOneStream) {
  const Case c = {kType4, 2, 2, true, {{5, 6}, {1, 10}}, {{4, 7}, {11, 0}}, 0, 13, 9, true, true};
  EXPECT_FALSE(Planned(c, 0, 1000).plan.schedule->overlaps);
  EXPECT_TRUE(Planned(c, 0, 45).plan.schedule->overlaps);
}

// Both measured ratios were those of the schedule with overlap, which has nothing to overlap in the
// second. The sums of type 1 are twice as long as its output's type would make them.
TEST(TheModelIsCloseToWhatWasMeasured) {
  const StreamTimes sums = OnAnH200(kType1, 1024);
  EXPECT_TRUE(std::abs(sums.product_us - 1281) < 30);
  EXPECT_TRUE(std::abs(sums.overlapped_us / sums.product_us - 1.22) < 0.03);
  const StreamTimes gathers = OnAnH200(kType2, 1024);
  EXPECT_TRUE(std::abs(gathers.in_turn_us / gathers.product_us - 1.12) < 0.05);
}

// What it says of the schedule that it chooses.
TEST(ProductsInTurnCloseToTheProductAlone) {
  const auto ratio = [](Param::ParallelType type, int64_t rows) {
    const StreamTimes times = OnAnH200(type, rows);
    return times.in_turn_us / times.product_us;
  };
  EXPECT_TRUE(ratio(kType2, 1024) < 1.09);
  EXPECT_TRUE(ratio(kType2, 4096) < 1.06);
  EXPECT_TRUE(ratio(kType1, 1024) < 1.14);
  EXPECT_TRUE(ratio(kType1, 4096) < 1.12);
}

}  // namespace collops

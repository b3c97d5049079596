// How a call is cut into collectives and products, and in which order they begin; and, on a device
// that several ranks share, whether they run at the same time: by a model of what they take.
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "collops/operators/linear_parallel/engine.h"

namespace collops {
namespace {

// Rows of one member in one AllGatherV on the CPU: about this many bytes, in whole pieces that can
// be packed.
constexpr int64_t kRowsBytes = 1 << 20;
// Of the products that the ranks add up in one call, where those of a strip are less: a call's
// start then does not count.
constexpr int64_t kSumBytes = 1 << 20;
// On a device: bytes that one AllGatherV brings of each rank, and of one tile. Long enough that a
// call's start does not count, short enough that most of a matrix is left to overlap with.
constexpr int64_t kChunkBytes = 8 << 20;
constexpr int64_t kTileBytes = 16 << 20;
// Of a tile of a call that overlaps nothing: what two tiles take, or where the ranks may be threads
// of one device, for which this is, so much that most products are one piece.
constexpr int64_t kTileInTurnBytes = 2 * kTileBytes;
constexpr int64_t kTileOfThreadsBytes = 128 << 20;
// Strips begin at whole cache lines and blocks of the matrix unit.
constexpr int64_t kColumnUnit = 256;

int64_t StripColumns(const LinearPlan& plan, const LinearSchedule& schedule) {
  if (!schedule.has_tiles) return plan.layout.n;
  const int64_t row_bytes =
      std::max<int64_t>(plan.layout.total_rows, 1) * MostRoots(plan) * int64_t{sizeof(float)};
  const DeviceShare share = plan.communicator->device_share();
  const bool have_met = share.multiprocessors > 0;
  const bool has_threads =
      have_met ? share.in_one_context : plan.communicator->spec().comm_mode == COMM_MULTI_THREAD;
  const int64_t tile_bytes = !schedule.in_turn ? kTileBytes
                             : has_threads     ? kTileOfThreadsBytes
                                               : kTileInTurnBytes;
  const int64_t columns = tile_bytes / row_bytes / kColumnUnit * kColumnUnit;
  // Not clamp(): n may be less than the unit.
  return std::min(std::max(columns, kColumnUnit), std::max<int64_t>(plan.layout.n, 1));
}

// The first strip is multiplied while rows arrive, by a product for each rank's: it is so wide that
// one of them is as long as that of all rows and another strip. Half of the columns is left, so
// that sums overlap with products.
int64_t FirstColumns(const LinearPlan& plan, const LinearSchedule& schedule, int64_t columns) {
  if (schedule.in_turn || !schedule.sums || !Gathers(plan)) return columns;
  const int64_t half = (plan.layout.n / 2 + kColumnUnit - 1) / kColumnUnit * kColumnUnit;
  const auto ranks = static_cast<int64_t>(plan.layout.gather.ranks.size());
  return std::max(columns, std::min(columns * ranks, half));
}

// The first strip may be wider than the others.
void CutStrips(const LinearPlan& plan, int64_t first, int64_t columns, LinearSchedule* schedule) {
  const RowGroup& group = plan.layout.scatter;
  for (int64_t begin = 0; begin < plan.layout.n;) {
    ColumnStrip strip;
    strip.begin = begin;
    strip.columns = std::min(begin == 0 ? first : columns, plan.layout.n - begin);
    for (size_t m = 0; m < group.rows.size(); ++m) {
      strip.counts.push_back(group.rows[m] * strip.columns);
      strip.displs.push_back(group.begin[m] * strip.columns);
    }
    begin += strip.columns;
    schedule->strips.push_back(std::move(strip));
  }
}

// How many strips of the product are summed at a time. Leaves have several tiles for each.
int64_t StripsAtOnce(const LinearPlan& plan) {
  if (!SumsPartials(plan) || plan.layout.leaves.count > 0) return 1;
  const int64_t row_bytes = kernels::kGemmStripColumns * int64_t{sizeof(float)};
  return std::max<int64_t>(kSumBytes / row_bytes / std::max<int64_t>(plan.layout.total_rows, 1), 1);
}

// Whether a product of so many rows and columns is worth a launch of its own.
bool FillsDevice(const LinearPlan& plan, int64_t rows, int64_t columns) {
  return rows * columns >= plan.stream_compute->elements_at_once();
}

// Columns by which the ranks cut their rows. Without a sum a residual, which not every rank need
// have, makes the strips.
int64_t CutColumns(const LinearPlan& plan, const LinearSchedule& schedule) {
  return schedule.sums && !schedule.strips.empty() ? schedule.strips.front().columns
                                                   : plan.layout.n;
}

// Whether products of the rows of one rank are worth their launches, on average, so that they may
// begin before all rows are there. Equal on all ranks, also of other groups.
bool OverlapsGather(const LinearPlan& plan, const LinearSchedule& schedule) {
  if (schedule.in_turn || !Gathers(plan) || plan.layout.k == 0) return false;
  const auto ranks = static_cast<int64_t>(plan.layout.gather.ranks.size());
  return FillsDevice(plan, plan.layout.total_rows / ranks, CutColumns(plan, schedule));
}

// Of a member, if rows are gathered and have elements.
int64_t MostRows(const LinearPlan& plan) {
  const std::vector<int64_t>& rows = plan.layout.gather.rows;
  return plan.layout.k == 0 ? 0 : *std::max_element(rows.begin(), rows.end());
}

// Rows of each rank that one call gathers. The chunks are equal, as the products of a short rest
// would take as long as a chunk's.
int64_t ChunkRows(const LinearPlan& plan, const LinearSchedule& schedule) {
  const int64_t most_rows = MostRows(plan);
  const int64_t row_bytes = std::max<int64_t>(RowBytes(plan), 1);
  int64_t count = most_rows / std::max<int64_t>(kChunkBytes / row_bytes, 1);
  if (!OverlapsGather(plan, schedule)) count = 1;
  for (; count > 1; --count) {
    const int64_t rows = (most_rows + count - 1) / count;
    if (FillsDevice(plan, rows, CutColumns(plan, schedule))) return rows;
  }
  return std::max<int64_t>(most_rows, 1);
}

// Chunks of `at_once` rows of each member. `packed`: one member's behind the other's.
void CutGathers(const LinearPlan& plan, int64_t at_once, bool packed, LinearSchedule* schedule) {
  const RowGroup& group = plan.layout.gather;
  const int64_t k = plan.layout.k;
  const int64_t most = MostRows(plan);
  int64_t row = 0;
  do {
    GatherChunk chunk;
    chunk.row = row;
    int64_t end = 0;
    for (size_t m = 0; m < group.rows.size(); ++m) {
      const int64_t rows = std::clamp<int64_t>(group.rows[m] - row, 0, at_once);
      chunk.counts.push_back(rows * k);
      chunk.displs.push_back(packed ? end : (group.begin[m] + (rows == 0 ? 0 : row)) * k);
      end += rows * k;
    }
    schedule->gathers.push_back(std::move(chunk));
    row += at_once;
  } while (row < most);
}

// The products of the first strip: of this rank's own rows, which are there before any other's, if
// that keeps the device busy until others arrive; then of what each chunk brings, neighbours in
// one.
void CutPieces(const LinearPlan& plan, LinearSchedule* schedule) {
  const RowGroup& group = plan.layout.gather;
  std::vector<RowPiece>& pieces = schedule->pieces;
  if (!Gathers(plan) || plan.layout.k == 0) {
    pieces = {{RowPiece::kInX, 0, plan.layout.total_rows}};
    return;
  }
  const auto own = static_cast<size_t>(group.index);
  const bool own_first = OverlapsGather(plan, *schedule) &&
                         FillsDevice(plan, group.rows[own], schedule->strips.front().columns);
  if (own_first) pieces.push_back({RowPiece::kInX, group.begin[own], group.rows[own]});
  for (size_t c = 0; c < schedule->gathers.size(); ++c) {
    const GatherChunk& chunk = schedule->gathers[c];
    for (size_t m = 0; m < group.rows.size(); ++m) {
      if ((own_first && m == own) || chunk.counts[m] == 0) continue;
      const RowPiece piece = {static_cast<int>(c), chunk.displs[m] / plan.layout.k,
                              chunk.counts[m] / plan.layout.k};
      RowPiece* const last = pieces.empty() ? nullptr : &pieces.back();
      if (last != nullptr && last->chunk == piece.chunk &&
          last->begin + last->rows == piece.begin) {
        last->rows += piece.rows;
      } else {
        pieces.push_back(piece);
      }
    }
  }
}

// For one multiprocessor and one microsecond, as 8 ranks on an H200, which has 132, have shown it:
// operations of a product of 16-bit and of float32 numbers, and bytes that collectives read and
// write.
constexpr double kOperations = 6.5e6;
constexpr double kFloat32Operations = 0.5e6;
constexpr double kMovedBytes = 26e3;
// Of a collective or another short kernel: those of a device's ranks start one after the other.
constexpr double kStartUs = 2.0;
// Rows and columns that a block of a product computes.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kBlockColumns = 256;
// How much the model was off in what was measured: overlap must be better by more.
constexpr double kModelError = 0.05;

class StreamModel {
 public:
  StreamModel(const LinearPlan& plan, const DeviceShare& share)
      : plan_(plan),
        share_(share),
        all_(share.multiprocessors),
        beside_(std::clamp(share.blocks_beside, 1, std::max(all_ - 1, 1))) {}

  // The products of all ranks of the device, each of which begins while the one before it ends.
  double ProductUs(int64_t columns) const {
    const LinearLayout& layout = plan_.layout;
    const bool is_float = plan_.dtype == DType::kFloat32 || layout.leaves.count > 0;
    return share_.ranks * 2.0 * static_cast<double>(layout.total_rows * layout.k) *
           static_cast<double>(columns) / ((is_float ? kFloat32Operations : kOperations) * all_);
  }

  double InTurnUs(const LinearSchedule& schedule) const {
    double us = GatherUs(all_);
    for (const ColumnStrip& strip : schedule.strips) {
      us += ProductUs(strip.columns) + LastBlocksUs(strip.columns);
      us += SumUs(schedule, strip.columns, all_) + StoreUs(schedule, strip.columns);
    }
    return us;
  }

  // The blocks of a collective take multiprocessors from the products beside it. Those of a sum
  // wait for as long as a strip's products: these come one after the other.
  double OverlappedUs(const LinearSchedule& schedule) const {
    double products_us = kStartUs * share_.ranks * static_cast<double>(schedule.pieces.size() - 1);
    double beside_us = GatherUs(beside_);
    int64_t before = 0;
    for (const ColumnStrip& strip : schedule.strips) {
      const double product_us = ProductUs(strip.columns);
      products_us += product_us;
      if (before > 0) beside_us += std::max(product_us, SumUs(schedule, before, beside_));
      before = schedule.sums ? strip.columns : 0;
    }
    const int64_t last = schedule.strips.back().columns;
    const double lost_us = std::min(beside_us, products_us) * beside_ / std::max(all_ - beside_, 1);
    return std::max(products_us + lost_us, beside_us) + LastBlocksUs(last) +
           SumUs(schedule, last, all_) + StoreUs(schedule, last);
  }

 private:
  // What products take longer if all ranks wait for their end: the last blocks leave
  // multiprocessors with nothing to do.
  double LastBlocksUs(int64_t columns) const {
    const auto parts = [](int64_t whole, int64_t part) { return (whole + part - 1) / part; };
    const int64_t blocks =
        share_.ranks * parts(plan_.layout.total_rows, kBlockRows) * parts(columns, kBlockColumns);
    const double rounds = static_cast<double>(blocks) / all_;
    return blocks == 0 ? 0 : ProductUs(columns) * (std::ceil(rounds) / rounds - 1);
  }

  // A collective after which, or before which, every rank of the device has so many bytes of all.
  double MoveUs(int64_t bytes, int multiprocessors) const {
    return kStartUs * share_.ranks +
           (share_.ranks + 1) * static_cast<double>(bytes) / (kMovedBytes * multiprocessors);
  }

  double GatherUs(int multiprocessors) const {
    if (plan_.layout.gather.ranks.size() == 1) return 0;
    return MoveUs(plan_.layout.total_rows * RowBytes(plan_), multiprocessors);
  }

  double SumUs(const LinearSchedule& schedule, int64_t columns, int multiprocessors) const {
    if (!schedule.sums) return 0;
    const int64_t bytes =
        plan_.layout.total_rows * columns * MostRoots(plan_) * int64_t{sizeof(float)};
    return MoveUs(bytes, multiprocessors) * (schedule.all_reduces ? 2 : 1);
  }

  // Rounds what was summed. A rank has as many rows of it as its peers on average.
  double StoreUs(const LinearSchedule& schedule, int64_t columns) const {
    if (!schedule.has_tiles) return 0;
    const bool scatters = schedule.sums && !schedule.all_reduces;
    const auto parts = static_cast<int64_t>(scatters ? plan_.layout.scatter.ranks.size() : 1);
    const int64_t element = int64_t{sizeof(float)} + SizeOf(plan_.dtype);
    const auto bytes = static_cast<double>(plan_.layout.total_rows * columns / parts * element);
    return kStartUs * share_.ranks + share_.ranks * bytes / (kMovedBytes * all_);
  }

  const LinearPlan& plan_;
  const DeviceShare& share_;
  const int all_;     // multiprocessors
  const int beside_;  // of which collectives beside products have these
};

}  // namespace

std::shared_ptr<LinearSchedule> CutForCpu(const LinearPlan& plan) {
  auto schedule = std::make_shared<LinearSchedule>();
  schedule->in_turn = true;
  schedule->sums = SumsPartials(plan);
  schedule->all_reduces = AllReduces(plan);
  const int64_t unit = kernels::kGemmRowUnit;
  const int64_t row_bytes = std::max<int64_t>(RowBytes(plan), 1);
  const int64_t at_once = unit * std::max<int64_t>(kRowsBytes / unit / row_bytes, 1);
  if (Gathers(plan)) CutGathers(plan, at_once, true, schedule.get());
  const int64_t columns = kernels::kGemmStripColumns * StripsAtOnce(plan);
  CutStrips(plan, columns, columns, schedule.get());
  schedule->pieces = {{RowPiece::kInX, 0, plan.layout.total_rows}};
  MakeSteps(plan, schedule.get());
  return schedule;
}

std::shared_ptr<LinearSchedule> CutForDevice(const LinearPlan& plan, bool in_turn) {
  auto schedule = std::make_shared<LinearSchedule>();
  schedule->in_turn = in_turn;
  schedule->sums = SumsPartials(plan);
  schedule->all_reduces = AllReduces(plan);
  const bool rounds_leaves = plan.layout.leaves.count > 0 && plan.output_dtype != DType::kFloat32;
  schedule->has_tiles = schedule->sums || plan.has_residual || MultipliesInt8(plan) ||
                        plan.layout.quant.has_token_scale || rounds_leaves;
  const int64_t columns = std::max<int64_t>(StripColumns(plan, *schedule), 1);
  CutStrips(plan, FirstColumns(plan, *schedule, columns), columns, schedule.get());
  if (Gathers(plan)) CutGathers(plan, ChunkRows(plan, *schedule), false, schedule.get());
  CutPieces(plan, schedule.get());
  // Else nothing would run at the same time: marks and a second stream would only take time.
  schedule->overlaps = !in_turn && (OverlapsGather(plan, *schedule) ||
                                    (schedule->sums && schedule->strips.size() > 1));
  return schedule;
}

// The first strip takes the rows as they arrive; then all of them are there. A strip is stored when
// the next one has been multiplied, if there is a slot for that: its sum has ended meanwhile.
void MakeSteps(const LinearPlan& plan, LinearSchedule* schedule) {
  std::vector<LinearStep>& steps = schedule->steps;
  const auto chunks = static_cast<int>(schedule->gathers.size());
  const auto strips = static_cast<int64_t>(schedule->strips.size());
  for (int chunk = 0; chunk < chunks; ++chunk) {
    steps.push_back({LinearStep::kGather, 0, {chunk, 0, 0}});
  }
  if (plan.layout.total_rows == 0 || plan.layout.n == 0) return;
  if (schedule->converts || WidensWeight(plan)) steps.push_back({LinearStep::kConvertWeight});
  const RowPiece all = {schedule->pieces.back().chunk, 0, plan.layout.total_rows};
  const int64_t behind = schedule->sums ? schedule->num_slots() - 1 : 0;
  for (int64_t strip = 0; strip < strips + behind; ++strip) {
    for (const RowPiece& piece : schedule->pieces) {
      if (strip == 0) steps.push_back({LinearStep::kMultiply, 0, piece});
    }
    if (strip > 0 && strip < strips) steps.push_back({LinearStep::kMultiply, strip, all});
    if (schedule->sums && strip < strips) steps.push_back({LinearStep::kSum, strip});
    if (strip >= behind) steps.push_back({LinearStep::kStore, strip - behind});
  }
}

StreamTimes ModelTimes(const LinearPlan& plan, const DeviceShare& share) {
  const StreamModel model(plan, share);
  return {model.ProductUs(plan.layout.n), model.InTurnUs(*plan.in_turn),
          model.OverlappedUs(*plan.schedule)};
}

// On devices of their own ranks always overlap. Threads on one device never do, whatever the model
// says: two streams of each would need twice as many of the queues that the device has.
const LinearSchedule& ChooseSchedule(const LinearPlan& plan, const DeviceShare& share) {
  if (!plan.schedule->overlaps || share.ranks == 1) return *plan.schedule;
  if (share.in_one_context || share.blocks_beside == 0) return *plan.in_turn;
  const StreamTimes times = ModelTimes(plan, share);
  const bool overlaps = times.overlapped_us * (1 + kModelError) < times.in_turn_us;
  return overlaps ? *plan.schedule : *plan.in_turn;
}

}  // namespace collops

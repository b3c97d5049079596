// What a call takes on a device that several ranks share, and so whether collectives and products
// run at the same time there.
#include <algorithm>
#include <cmath>

#include "collops/operators/linear_parallel/product.h"
#include "collops/operators/linear_parallel/schedule.h"

namespace collops {
namespace {

// For one multiprocessor and one microsecond, as 8 ranks on an H200, which has 132, have shown it:
// operations of a product of 16-bit and of float32 numbers, and bytes that collectives read and
// write.
constexpr double kOperations = 6.5e6;
constexpr double kFloat32Operations = 0.5e6;
constexpr double kBytes = 26e3;
// Of a collective or another short kernel: those of a device's ranks start one after the other.
constexpr double kStartUs = 2.0;
// Rows and columns that a block of a product computes.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kBlockColumns = 256;
// How much the model was off in what was measured: overlap must be better by more.
constexpr double kModelError = 0.05;

class Model {
 public:
  Model(const LinearPlan& plan, const DeviceShare& share)
      : plan_(plan),
        share_(share),
        all_(share.multiprocessors),
        beside_(std::clamp(share.blocks_beside, 1, std::max(all_ - 1, 1))) {}

  // The products of all ranks of the device, each of which begins while the one before it ends.
  double ProductUs(int64_t columns) const {
    const LinearLayout& layout = plan_.layout;
    const bool is_float = plan_.dtype == DType::kFloat32;
    return share_.ranks * 2.0 * static_cast<double>(layout.total_rows * layout.k) *
           static_cast<double>(columns) / ((is_float ? kFloat32Operations : kOperations) * all_);
  }

  double InTurnUs(const StreamSchedule& schedule) const {
    double us = GatherUs(all_);
    for (const ColumnStrip& strip : schedule.strips) {
      us += ProductUs(strip.columns) + LastBlocksUs(strip.columns);
      us += SumUs(schedule, strip.columns, all_) + StoreUs(schedule, strip.columns);
    }
    return us;
  }

  // The blocks of a collective take multiprocessors from the products beside it. Those of a sum
  // wait for as long as a strip's products: these come one after the other.
  double OverlappedUs(const StreamSchedule& schedule) const {
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
           (share_.ranks + 1) * static_cast<double>(bytes) / (kBytes * multiprocessors);
  }

  double GatherUs(int multiprocessors) const {
    if (plan_.layout.gather.ranks.size() == 1) return 0;
    return MoveUs(plan_.layout.total_rows * RowBytes(plan_), multiprocessors);
  }

  double SumUs(const StreamSchedule& schedule, int64_t columns, int multiprocessors) const {
    if (!schedule.sums) return 0;
    const int64_t bytes = plan_.layout.total_rows * columns * int64_t{sizeof(float)};
    return MoveUs(bytes, multiprocessors) * (schedule.all_reduces ? 2 : 1);
  }

  // Rounds what was summed. A rank has as many rows of it as its peers on average.
  double StoreUs(const StreamSchedule& schedule, int64_t columns) const {
    if (!schedule.has_tiles) return 0;
    const bool scatters = schedule.sums && !schedule.all_reduces;
    const auto parts = static_cast<int64_t>(scatters ? plan_.layout.scatter.ranks.size() : 1);
    const int64_t element = int64_t{sizeof(float)} + SizeOf(plan_.dtype);
    const auto bytes = static_cast<double>(plan_.layout.total_rows * columns / parts * element);
    return kStartUs * share_.ranks + share_.ranks * bytes / (kBytes * all_);
  }

  const LinearPlan& plan_;
  const DeviceShare& share_;
  const int all_;     // multiprocessors
  const int beside_;  // of which collectives beside products have these
};

}  // namespace

StreamTimes ModelTimes(const LinearPlan& plan, const DeviceShare& share) {
  const Model model(plan, share);
  return {model.ProductUs(plan.layout.n), model.InTurnUs(*plan.in_turn),
          model.OverlappedUs(*plan.schedule)};
}

// On devices of their own ranks always overlap. Threads on one device never do, whatever the model
// says: two streams of each would need twice as many of the queues that the device has.
const StreamSchedule& ChooseSchedule(const LinearPlan& plan, const DeviceShare& share) {
  if (!plan.schedule->overlaps || share.ranks == 1) return *plan.schedule;
  if (share.in_one_context || share.blocks_beside == 0) return *plan.in_turn;
  const StreamTimes times = ModelTimes(plan, share);
  const bool overlaps = times.overlapped_us * (1 + kModelError) < times.in_turn_us;
  return overlaps ? *plan.schedule : *plan.in_turn;
}

}  // namespace collops

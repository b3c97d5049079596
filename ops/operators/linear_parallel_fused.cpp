#include "operators/linear_parallel_fused.h"

#include <chrono>
#include <optional>
#include <thread>

#include "core/deadline.h"
#include "core/trace.h"
#include "operators/linear_parallel_partials.h"
#include "operators/linear_parallel_rows.h"
#include "operators/linear_parallel_strip.h"

namespace collops {
namespace {

// How long the first strip waits for rows that are not there yet: multiplied by themselves later
// they need every block of the weight a second time.
constexpr double kPatienceS = 200e-6;

// Few rows take as long as the weight takes to pass by: to begin without the others gains nothing.
constexpr double kJoinPatienceS = 5e-3;

class FusedLinear {
 public:
  FusedLinear(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace,
              FusedCall* call)
      : plan_(plan),
        tensors_(tensors),
        call_(call),
        rows_(plan, tensors, workspace),
        strip_(plan, tensors, workspace),
        next_strip_(rows_.groups().size(), 0),
        tile_(reinterpret_cast<float*>(workspace + plan.memory.tile)) {
    if (SumsPartials(plan)) sums_.emplace(plan, tensors, call);
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (rows_.groups()[g].rows == 0) next_strip_[g] = plan_.gemm.num_strips();
    }
  }

  Status Run() {
    while (!Done()) {
      bool moved = false;
      RETURN_IF_ERROR(TakeArrived(&moved));
      if (moved) continue;
      Choose(&chosen_);
      if (chosen_.empty()) {
        RETURN_IF_ERROR(call_->Wait([&] { return CanMove(); }));
      } else if (IsWorthWaiting()) {
        std::this_thread::yield();
      } else {
        RETURN_IF_ERROR(Multiply(chosen_));
      }
    }
    return Ok();
  }

 private:
  bool Done() const {
    const int64_t num_strips = plan_.gemm.num_strips();
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (next_strip_[g] != num_strips || !call_->AllRead(g)) return false;
    }
    return !sums_ || sums_->Done();
  }

  // Takes the rows and adds up the partial sums that have come; own rows first.
  Status TakeArrived(bool* moved) {
    RETURN_IF_ERROR(call_->Progress());
    const size_t num_groups = next_strip_.size();
    for (size_t i = 0; i < num_groups; ++i) {
      const size_t g = (static_cast<size_t>(plan_.layout.gather.index) + i) % num_groups;
      MatrixPart part;
      while (call_->NextPart(g, &part)) {
        rows_.Take(g, part);
        call_->ReleasePart(g);
        *moved = true;
      }
    }
    return sums_ ? sums_->Take(moved) : Ok();
  }

  // The groups whose rows are there and whose next strip, the same for all of them, is the first.
  // Rows that were joined stay together.
  void Choose(std::vector<size_t>* groups) const {
    groups->clear();
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (!CanMultiply(g)) {
        if (rows_.joined() && IsLeft(g)) return groups->clear();
        continue;
      }
      if (!groups->empty() && next_strip_[g] < next_strip_[groups->front()]) groups->clear();
      if (groups->empty() || next_strip_[g] == next_strip_[groups->front()]) groups->push_back(g);
    }
  }

  bool IsLeft(size_t g) const { return next_strip_[g] < plan_.gemm.num_strips(); }

  bool CanMultiply(size_t g) const {
    return IsLeft(g) && call_->AllRead(g) && (!sums_ || sums_->IsFree(g, next_strip_[g]));
  }

  bool CanMove() {
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      MatrixPart part;
      if (call_->NextPart(g, &part)) return true;
    }
    Choose(&chosen_);
    if (!chosen_.empty()) return true;
    return Done() || (sums_ && sums_->CanTake());
  }

  // Before the first strip, while rows are missing; few rows are joined once all of them are there.
  bool IsWorthWaiting() {
    bool missing = false;
    for (size_t g = 0; g < next_strip_.size(); ++g) {
      if (rows_.groups()[g].rows == 0) continue;
      if (next_strip_[g] > 0) return false;
      missing = missing || !call_->AllRead(g);
    }
    if (!missing) {
      if (rows_.joins() && !rows_.joined()) rows_.Join();
      return false;
    }
    if (!patience_) patience_ = Deadline::After(rows_.joins() ? kJoinPatienceS : kPatienceS);
    return !patience_->Passed();
  }

  // One strip of columns of the groups' rows; what arrives meanwhile is taken between two blocks.
  Status Multiply(const std::vector<size_t>& groups) {
    const int64_t strip = next_strip_[groups.front()];
    std::vector<LinearStrip::Task> tasks;
    if (rows_.joined()) {
      tasks.push_back({&rows_.all(), Tile(0, strip)});
    } else {
      for (const size_t g : groups) {
        rows_.Pack(g);
        const GatheredRows::Group& group = rows_.groups()[g];
        tasks.push_back({&group, Tile(group.first_row, strip)});
      }
    }
    for (int64_t k_block = 0; k_block < plan_.gemm.num_k_blocks(); ++k_block) {
      strip_.Multiply(tasks, strip, k_block, ld_);
      bool moved = false;
      RETURN_IF_ERROR(TakeArrived(&moved));
    }
    for (const size_t g : groups) {
      const GatheredRows::Group& group = rows_.groups()[g];
      if (!sums_) strip_.Store(group, strip, Tile(group.first_row, strip), ld_);
      next_strip_[g] = strip + 1;
      if (sums_) call_->Signal(static_cast<int>(g), next_strip_[g]);
      if (traced_) TraceStrip(g, strip);
    }
    return Ok();
  }

  float* Tile(int64_t row, int64_t strip) const {
    if (!sums_) return tile_ + row * ld_;
    return reinterpret_cast<float*>(call_->tiles()) + TileOffset(plan_, row, strip);
  }

  void TraceStrip(size_t g, int64_t strip) const {
    const std::chrono::duration<double, std::milli> at = std::chrono::steady_clock::now() - start_;
    Trace(Concat("  rows of rank ", plan_.layout.gather.ranks[g], " strip ", strip + 1, "/",
                 plan_.gemm.num_strips(), " on rank ",
                 plan_.layout.gather.ranks[static_cast<size_t>(plan_.layout.gather.index)], " at ",
                 at.count(), " ms"));
  }

  const LinearPlan& plan_;
  const LinearTensors& tensors_;
  FusedCall* call_;
  GatheredRows rows_;
  LinearStrip strip_;
  std::vector<int64_t> next_strip_;
  std::vector<size_t> chosen_;
  float* tile_;
  const int64_t ld_ = plan_.gemm.StripColumns(0);
  std::optional<PartialSums> sums_;
  std::optional<Deadline> patience_;
  const bool traced_ = TraceStrips();
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Status RunFusedLinear(const LinearPlan& plan, const LinearTensors& tensors,
                      const Agreement& agreement, std::byte* workspace, Communicator* communicator) {
  const LinearLayout& layout = plan.layout;
  FusedCallSpec spec;
  spec.agreement = &agreement;
  spec.dtype = plan.dtype;
  spec.readers = &layout.gather.ranks;
  spec.reader_rows = &layout.gather.rows;
  spec.row_bytes = layout.k * SizeOf(plan.dtype);
  spec.row_unit = kernels::kGemmRowUnit;
  spec.x = tensors.x;
  spec.tile_bytes = plan.memory.tile_bytes;
  spec.x_count = layout.gather.rows[static_cast<size_t>(layout.gather.index)] * layout.k;
  spec.output_count = layout.scatter.rows[static_cast<size_t>(layout.scatter.index)] * layout.n;
  return communicator->RunFused(
      spec, [&](FusedCall* call) { return FusedLinear(plan, tensors, workspace, call).Run(); });
}

}  // namespace collops

// The CPU's engines without windows: one product of a rank alone, and collectives and products one
// after the other.
#include <algorithm>
#include <utility>
#include <vector>

#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

Status AcceptsAlone(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(place.alone(), ERROR_UNSUPPORTED, "a product of ", place.rank_size,
                    " ranks needs communication");
  return Ok();
}

Status AcceptsCalls(const EnginePlace& place) {
  COLLOPS_RETURN_IF_ERROR(CheckOnCpu(place));
  COLLOPS_CHECK_ARG(!place.alone() || place.rank_size == 1, ERROR_UNSUPPORTED,
                    "this product needs no communication");
  return Ok();
}

Status PlanInTurn(LinearPlan* plan) {
  const std::shared_ptr<LinearSchedule> schedule = CutForCpu(*plan);
  Places places = PlaceRows(plan);
  const int64_t columns = schedule->strips.empty() ? 0 : schedule->strips.front().columns;
  const int64_t row_bytes = columns * int64_t{sizeof(float)};  // no strip is wider
  schedule->tiles[0] = places.Take(plan->gemm.num_roots * plan->layout.total_rows * row_bytes);
  if (schedule->sums) {
    const auto tiles = static_cast<int64_t>(std::max<size_t>(plan->tree.size(), 1));
    schedule->slots[0] = places.Take(tiles * OwnRows(*plan) * row_bytes);
  }
  if (!schedule->gathers.empty()) {  // no chunk is longer than the first
    const GatherChunk& chunk = schedule->gathers.front();
    schedule->gathered =
        places.Take((chunk.displs.back() + chunk.counts.back()) * SizeOf(plan->dtype));
  }
  plan->memory.bytes = places.bytes();
  plan->schedule = schedule;
  return Ok();
}

// The steps one after the other: AllGatherV of some rows at a time into packed rows, then for each
// strip of columns the product and its ReduceScatterV in float32.
class LinearInTurn {
 public:
  LinearInTurn(const LinearRun& run, const GridParts& parts)
      : run_(run),
        plan_(run.plan),
        rows_(run),
        strip_(run),
        tile_(reinterpret_cast<float*>(run.workspace + plan_.schedule->tiles[0])),
        sum_(reinterpret_cast<float*>(run.workspace + plan_.schedule->slots[0])),
        parts_(parts) {}

  Status Run() {
    const int64_t row_bytes = RowBytes(plan_);
    const auto* const x = static_cast<const std::byte*>(run_.tensors.x);
    if (!Gathers(plan_)) rows_.Take(0, {x, row_bytes, 0, plan_.layout.total_rows, 0, row_bytes});
    for (const LinearStep& step : plan_.schedule->steps) COLLOPS_RETURN_IF_ERROR(Do(step));
    return Ok();
  }

 private:
  Status Do(const LinearStep& step) {
    switch (step.kind) {
      case LinearStep::kGather:
        return Gather(plan_.schedule->gathers[static_cast<size_t>(step.piece.chunk)]);
      case LinearStep::kMultiply:
        Multiply(StripOf(step));
        return Ok();
      case LinearStep::kSum:
        return Sum(StripOf(step));
      case LinearStep::kStore:
        Store(StripOf(step));
        return Ok();
      case LinearStep::kConvertWeight:
        break;
    }
    return Ok();
  }

  const ColumnStrip& StripOf(const LinearStep& step) const {
    return plan_.schedule->strips[static_cast<size_t>(step.strip)];
  }

  // The product's strips in it.
  static Range ProductStrips(const ColumnStrip& strip) {
    const int64_t columns = kernels::kGemmStripColumns;
    const int64_t first = strip.begin / columns;
    return {first, first + (strip.columns + columns - 1) / columns};
  }

  // The chunk's rows of every member, as far as it has them.
  Status Gather(const GatherChunk& chunk) {
    std::byte* const gathered = run_.workspace + plan_.schedule->gathered;
    const int64_t row_bytes = RowBytes(plan_);
    AllGatherVCall call;
    call.agreement = &gathers_;
    call.dtype = plan_.dtype;
    call.x = static_cast<const std::byte*>(run_.tensors.x) + chunk.row * row_bytes;
    call.output = gathered;
    call.recv_counts = chunk.counts.data();
    call.rdispls = chunk.displs.data();
    COLLOPS_RETURN_IF_ERROR(
        InGroup(plan_, plan_.layout.gather.ranks, parts_.gather->AllGatherV(call)));
    for (size_t g = 0; g < chunk.counts.size(); ++g) {
      if (chunk.counts[g] == 0) continue;
      const int64_t rows = chunk.counts[g] / plan_.layout.k;
      rows_.Take(g, {gathered + chunk.displs[g] * SizeOf(plan_.dtype), row_bytes, chunk.row, rows,
                     0, row_bytes});
    }
    return Ok();
  }

  void Multiply(const ColumnStrip& strip) {
    if (rows_.joins() && !rows_.joined()) rows_.Join();
    const Range strips = ProductStrips(strip);
    for (int64_t number = strips.begin; number < strips.end; ++number) {
      float* const tile = tile_ + plan_.gemm.StripBegin(number) - strip.begin;
      std::vector<LinearStrip::Task> tasks;
      if (rows_.joined()) {
        tasks.push_back({rows_.all(), tile});
      } else {
        for (const GatheredRows::Group& group : rows_.groups()) {
          tasks.push_back({group, tile + group.first_row * strip.columns});
        }
      }
      for (int64_t k_block = 0; k_block < plan_.gemm.num_k_blocks(); ++k_block) {
        strip_.Multiply(tasks, number, k_block, strip.columns);
      }
    }
  }

  Status Sum(const ColumnStrip& strip) {
    if (!plan_.tree.empty()) return SendRoots(strip);
    if (plan_.schedule->all_reduces) return AddAll(strip);
    ReduceScatterVCall call;
    call.agreement = &sums_;
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.output = sum_;
    call.output_count = OwnRows(plan_) * strip.columns;
    call.send_counts = strip.counts.data();
    call.sdispls = strip.displs.data();
    return InGroup(plan_, plan_.layout.scatter.ranks, parts_.scatter->ReduceScatterV(call));
  }

  Status AddAll(const ColumnStrip& strip) {
    AllReduceCall call;
    call.agreement = &sums_of_all_;
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.output = sum_;
    call.count = plan_.layout.total_rows * strip.columns;
    return InGroup(plan_, plan_.layout.scatter.ranks, parts_.scatter->AllReduce(call));
  }

  // To each member its rows of this rank's roots: the first root of all ranks, then the second of
  // those that have one.
  Status SendRoots(const ColumnStrip& strip) {
    const RowGroup& group = plan_.layout.scatter;
    const auto members = static_cast<int>(group.ranks.size());
    const int64_t own = OwnRows(plan_) * strip.columns;
    for (int64_t root = 0; root < MostRoots(plan_); ++root) {
      std::vector<int64_t> sends = strip.counts;
      std::vector<int64_t> receives;
      std::vector<int64_t> displs;
      int64_t place = 0;  // of the members' roots, one after the other
      for (size_t m = 0; m < group.ranks.size(); ++m) {
        if (root >= RootsOf(plan_, static_cast<size_t>(group.index))) sends[m] = 0;
        const bool has_root = root < RootsOf(plan_, m);
        receives.push_back(has_root ? own : 0);
        displs.push_back(has_root ? (place + root) * own : 0);
        place += RootsOf(plan_, m);
      }
      Agreement agreement("AllToAllV");
      agreement.Pairwise("sendCounts", sends.data(), "recvCounts", receives.data(), group.index,
                         members);
      ExchangeVCall call;
      call.agreement = &agreement;
      call.dtype = DType::kFloat32;
      call.x = tile_ + root * TileBytes(plan_) / int64_t{sizeof(float)};
      call.send_counts = sends.data();
      call.sdispls = strip.displs.data();
      call.output = sum_;
      call.recv_counts = receives.data();
      call.rdispls = displs.data();
      COLLOPS_RETURN_IF_ERROR(InGroup(plan_, group.ranks, parts_.scatter->ExchangeV(call)));
    }
    return Ok();
  }

  void Store(const ColumnStrip& strip) {
    const float* const from = SumsPartials(plan_) ? sum_ : tile_;
    const Range strips = ProductStrips(strip);
    for (int64_t number = strips.begin; number < strips.end; ++number) {
      std::vector<const float*> tiles = {from + plan_.gemm.StripBegin(number) - strip.begin};
      for (size_t i = 1; i < plan_.tree.size(); ++i) {
        tiles.push_back(from + static_cast<int64_t>(i) * OwnRows(plan_) * strip.columns);
      }
      strip_.Store(tiles.data(), tiles.size(), strip.columns, number, 0, OwnRows(plan_));
    }
  }

  const LinearRun& run_;
  const LinearPlan& plan_;
  GatheredRows rows_;
  LinearStrip strip_;
  float* const tile_;
  float* const sum_;
  const GridParts& parts_;
  // All that they move has been agreed on.
  const Agreement gathers_ = Agreement("AllGatherV");
  const Agreement sums_ = Agreement("ReduceScatterV");
  const Agreement sums_of_all_ = Agreement("AllReduce");
};

Status RunLocal(const LinearRun& run) {
  return LinearInTurn(run, {}).Run();
}

Status RunPipeline(const LinearRun& run) {
  // Those who disagree learn it before anything moves.
  COLLOPS_RETURN_IF_ERROR(run.communicator->Agree(run.agreement));
  GridParts parts;
  Status status = FindParts(run, &parts);
  if (status.ok()) status = LinearInTurn(run, parts).Run();
  return status.ok() ? status : FailInParts(run, status);
}

}  // namespace

const Engine kLocal = {"local", &AcceptsAlone, &PlanInTurn, &RunLocal};
const Engine kPipeline = {"pipeline", &AcceptsCalls, &PlanInTurn, &RunPipeline};

}  // namespace collops

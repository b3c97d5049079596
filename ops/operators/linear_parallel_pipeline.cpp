#include "operators/linear_parallel_pipeline.h"

#include <algorithm>
#include <string>
#include <utility>

#include "operators/linear_parallel_rows.h"
#include "operators/linear_parallel_strip.h"

namespace collops {
namespace {

// Rows of one member in one AllGatherV: about this many bytes, in whole tiles of every kernel.
constexpr int64_t kGatherBytes = 1 << 20;
constexpr int64_t kRowUnit = kernels::kGemmRowUnit;

int64_t RowBytes(const LinearPlan& plan) {
  return plan.layout.k * SizeOf(plan.dtype);
}

int64_t RowsAtOnce(const LinearPlan& plan) {
  return kRowUnit * std::max<int64_t>(kGatherBytes / kRowUnit / RowBytes(plan), 1);
}

bool Gathers(const LinearPlan& plan) {
  return plan.layout.gather.ranks.size() > 1;
}

int64_t OwnRows(const LinearLayout& layout) {
  return layout.scatter.rows[static_cast<size_t>(layout.scatter.index)];
}

// The communicator of one of the two groups, which all operations on such a grid share. All ranks
// are the communicator there is, and one rank alone needs none.
Status FindPart(const char* name, const std::vector<int>& ranks, int index, int other_index,
                const Agreement& agreement, Communicator* communicator,
                std::shared_ptr<Communicator>* part) {
  const int size = static_cast<int>(ranks.size());
  if (size == communicator->size() || size == 1) return Ok();
  std::string grid = name;
  for (const char* term : {"type", "agDim", "rsDim", "innerDimIsAg"}) {
    grid += Concat(" ", agreement.Value(term));
  }
  return communicator->KeptSplit(grid, other_index, index, part);
}

class PipelineLinear {
 public:
  PipelineLinear(const LinearPlan& plan, const LinearTensors& tensors, std::byte* workspace,
                 Communicator* gather, Communicator* scatter)
      : plan_(plan),
        tensors_(tensors),
        rows_(plan, tensors, workspace),
        strip_(plan, tensors, workspace),
        tile_(reinterpret_cast<float*>(workspace + plan.memory.tile)),
        sum_(reinterpret_cast<float*>(workspace + plan.memory.sum)),
        gathered_(workspace + plan.memory.gathered),
        gather_(gather),
        scatter_(scatter) {}

  Status Run() {
    RETURN_IF_ERROR(Gather());
    for (int64_t strip = 0; strip < plan_.gemm.num_strips(); ++strip) {
      Multiply(strip);
      if (SumsPartials(plan_)) {
        RETURN_IF_ERROR(Sum(strip));
        continue;
      }
      for (const GatheredRows::Group& group : rows_.groups()) {
        const int64_t ld = plan_.gemm.StripColumns(strip);
        strip_.Store(group, strip, tile_ + group.first_row * ld, ld);
      }
    }
    return Ok();
  }

 private:
  // An error of a part numbers the ranks as the part does.
  Status InGroup(const std::vector<int>& ranks, const Status& status) const {
    if (status.ok() || static_cast<int>(ranks.size()) == plan_.rank_size) return status;
    std::string list;
    for (const int rank : ranks) list += Concat(list.empty() ? "" : ", ", rank);
    return Error(status.code(), "LinearParallel: in the group of ranks ", list,
                 ", which are numbered from 0 there: ", status.message());
  }

  Status Gather() {
    const std::byte* x = static_cast<const std::byte*>(tensors_.x);
    const std::vector<int64_t>& rows = plan_.layout.gather.rows;
    const int64_t row_bytes = RowBytes(plan_);
    if (!Gathers(plan_)) {
      rows_.Take(0, {x, row_bytes, 0, rows[0], 0, row_bytes});
      return Ok();
    }
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    for (int64_t row = 0; row < most; row += RowsAtOnce(plan_)) {
      RETURN_IF_ERROR(GatherFrom(row, x + row * row_bytes));
    }
    if (rows_.joins()) rows_.Join();
    return Ok();
  }

  // Rows [row, row + RowsAtOnce) of every member, as far as it has them.
  Status GatherFrom(int64_t row, const std::byte* x) {
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    int64_t end = 0;
    for (const int64_t rows : plan_.layout.gather.rows) {
      counts.push_back(std::clamp<int64_t>(rows - row, 0, RowsAtOnce(plan_)) * plan_.layout.k);
      displs.push_back(end);
      end += counts.back();
    }
    AllGatherVCall call;
    call.agreement = &gathers_;
    call.dtype = plan_.dtype;
    call.x = x;
    call.output = gathered_;
    call.recv_counts = counts.data();
    call.rdispls = displs.data();
    RETURN_IF_ERROR(InGroup(plan_.layout.gather.ranks, gather_->AllGatherV(call)));
    const int64_t row_bytes = RowBytes(plan_);
    for (size_t g = 0; g < counts.size(); ++g) {
      const int64_t rows = counts[g] / plan_.layout.k;
      if (rows == 0) continue;
      rows_.Take(g,
                 {gathered_ + displs[g] * SizeOf(plan_.dtype), row_bytes, row, rows, 0, row_bytes});
    }
    return Ok();
  }

  void Multiply(int64_t strip) {
    const int64_t ld = plan_.gemm.StripColumns(strip);
    std::vector<LinearStrip::Task> tasks;
    if (rows_.joined()) {
      tasks.push_back({&rows_.all(), tile_});
    } else {
      for (const GatheredRows::Group& group : rows_.groups()) {
        tasks.push_back({&group, tile_ + group.first_row * ld});
      }
    }
    for (int64_t k_block = 0; k_block < plan_.gemm.num_k_blocks(); ++k_block) {
      strip_.Multiply(tasks, strip, k_block, ld);
    }
  }

  Status Sum(int64_t strip) {
    const LinearLayout& layout = plan_.layout;
    const int64_t columns = plan_.gemm.StripColumns(strip);
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
    for (size_t m = 0; m < layout.scatter.rows.size(); ++m) {
      counts.push_back(layout.scatter.rows[m] * columns);
      displs.push_back(layout.scatter.begin[m] * columns);
    }
    ReduceScatterVCall call;
    call.agreement = &sums_;
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.output = sum_;
    call.output_count = OwnRows(layout) * columns;
    call.send_counts = counts.data();
    call.sdispls = displs.data();
    RETURN_IF_ERROR(InGroup(layout.scatter.ranks, scatter_->ReduceScatterV(call)));
    strip_.Store({0, OwnRows(layout), nullptr}, strip, sum_, columns);
    return Ok();
  }

  const LinearPlan& plan_;
  const LinearTensors& tensors_;
  GatheredRows rows_;
  LinearStrip strip_;
  float* tile_;
  float* sum_;
  std::byte* gathered_;
  Communicator* gather_;
  Communicator* scatter_;
  // All they move has been agreed on.
  const Agreement gathers_ = Agreement("AllGatherV");
  const Agreement sums_ = Agreement("ReduceScatterV");
};

}  // namespace

int64_t SumBytes(const LinearPlan& plan) {
  if (!SumsPartials(plan)) return 0;
  return OwnRows(plan.layout) * plan.gemm.StripColumns(0) * int64_t{sizeof(float)};
}

int64_t GatherBytes(const LinearPlan& plan) {
  if (!Gathers(plan)) return 0;
  int64_t rows = 0;
  for (const int64_t n : plan.layout.gather.rows) rows += std::min(n, RowsAtOnce(plan));
  return rows * RowBytes(plan);
}

Status RunPipelineLinear(const LinearPlan& plan, const LinearTensors& tensors,
                         const Agreement& agreement, std::byte* workspace,
                         Communicator* communicator) {
  const LinearLayout& layout = plan.layout;
  // Those who disagree learn it before anything moves.
  RETURN_IF_ERROR(communicator->Agree(agreement));
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> scatter;
  RETURN_IF_ERROR(FindPart("gather", layout.gather.ranks, layout.gather.index,
                           layout.scatter.index, agreement, communicator, &gather));
  RETURN_IF_ERROR(FindPart("scatter", layout.scatter.ranks, layout.scatter.index,
                           layout.gather.index, agreement, communicator, &scatter));
  return PipelineLinear(plan, tensors, workspace, gather ? gather.get() : communicator,
                        scatter ? scatter.get() : communicator)
      .Run();
}

}  // namespace collops

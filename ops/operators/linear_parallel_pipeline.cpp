#include "operators/linear_parallel_pipeline.h"

#include <algorithm>
#include <numeric>

#include "kernels/store_sum.h"
#include "operators/linear_parallel_rows.h"
#include "operators/linear_parallel_strip.h"

namespace collops {
namespace {

// Rows of one member in one AllGatherV: about this many bytes, in whole tiles of every kernel.
constexpr int64_t kGatherBytes = 1 << 20;
constexpr int64_t kRowUnit = 24;

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

// Each rank tells the others what it is about to do, so that those who disagree learn it before
// anything moves. `anew` becomes whether a rank has yet to make the groups' communicators.
Status Agree(const LinearTerms& terms, bool have_parts, DType dtype, Communicator* communicator,
             bool* anew) {
  std::vector<int64_t> own = {have_parts ? 0 : 1, static_cast<int64_t>(dtype)};
  for (const CallTerm& term : terms.terms) own.push_back(term.value);
  const int64_t length = static_cast<int64_t>(own.size());
  const int size = communicator->size();
  const std::vector<int64_t> counts(static_cast<size_t>(size), length);
  std::vector<int64_t> displs(counts.size());
  std::vector<int64_t> all(own.size() * counts.size());
  for (size_t r = 0; r < displs.size(); ++r) displs[r] = static_cast<int64_t>(r) * length;
  AllGatherVCall call;
  call.kind = CallKind::kLinearParallel;
  call.dtype = DType::kInt64;
  call.root = terms.root;
  call.x = own.data();
  call.output = all.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  RETURN_IF_ERROR(communicator->AllGatherV(call));
  *anew = false;
  for (int r = 0; r < size; ++r) {
    const int64_t* theirs = all.data() + r * length;
    *anew = *anew || theirs[0] != 0;
    for (size_t i = 1; i < own.size(); ++i) {
      const char* name = i == 1 ? "dtype" : terms.terms[i - 2].name;
      CHECK_ARG(theirs[i] == own[i], ERROR_RANK_MISMATCH,
                "LinearParallel: the ranks disagree: ", name, " is ", own[i], " on rank ",
                communicator->rank(), " and ", theirs[i], " on rank ", r);
    }
  }
  return Ok();
}

// The communicator of one of the two groups; null for one rank alone. All ranks are the
// communicator there is.
Status MakePart(const std::vector<int>& ranks, int index, int other_index,
                Communicator* communicator, std::shared_ptr<Communicator>* part) {
  part->reset();
  const int size = static_cast<int>(ranks.size());
  if (size == communicator->size() || size == 1) return Ok();
  return communicator->Split(other_index, index, part);
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
    call.dtype = plan_.dtype;
    call.x = x;
    call.output = gathered_;
    call.recv_counts = counts.data();
    call.rdispls = displs.data();
    RETURN_IF_ERROR(gather_->AllGatherV(call));
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
    for (int64_t k_block = 0; k_block < plan_.gemm.num_k_blocks(); ++k_block) {
      const kernels::WeightBlock block = strip_.Block(strip, k_block);
      for (const GatheredRows::Group& group : rows_.groups()) {
        strip_.Multiply(group, block, strip, k_block, tile_ + group.first_row * ld, ld);
      }
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
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.x_shape.num_dims = 2;
    call.x_shape.dims[0] = layout.total_rows;
    call.x_shape.dims[1] = columns;
    call.output = sum_;
    call.output_count = OwnRows(layout) * columns;
    call.send_counts = counts.data();
    call.sdispls = displs.data();
    RETURN_IF_ERROR(scatter_->ReduceScatterV(call));
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
                         const LinearTerms& terms, std::byte* workspace, Communicator* communicator,
                         LinearParts* parts) {
  const LinearLayout& layout = plan.layout;
  bool anew = false;
  RETURN_IF_ERROR(Agree(terms, parts->made, plan.dtype, communicator, &anew));
  if (anew) {
    RETURN_IF_ERROR(MakePart(layout.gather.ranks, layout.gather.index, layout.scatter.index,
                             communicator, &parts->gather));
    RETURN_IF_ERROR(MakePart(layout.scatter.ranks, layout.scatter.index, layout.gather.index,
                             communicator, &parts->scatter));
    parts->made = true;
  }
  const auto part_or_all = [&](const std::shared_ptr<Communicator>& part) {
    return part == nullptr ? communicator : part.get();
  };
  return PipelineLinear(plan, tensors, workspace, part_or_all(parts->gather),
                        part_or_all(parts->scatter))
      .Run();
}

}  // namespace collops

#include "operators/linear_parallel_pipeline.h"

#include <algorithm>
#include <cstring>
#include <string>

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

// What each rank tells the others before anything moves, of the same length on every rank.
std::vector<int64_t> Record(const LinearPlan& plan, const LinearTerms& terms) {
  const auto size = static_cast<size_t>(plan.rank_size);
  std::vector<int64_t> record = {static_cast<int64_t>(plan.dtype)};
  for (const CallTerm& term : terms.terms) record.push_back(term.value);
  for (const std::vector<int64_t>* rows : {&plan.layout.gather.rows, &plan.layout.scatter.rows}) {
    std::vector<int64_t> list = *rows;
    list.resize(size);
    record.insert(record.end(), list.begin(), list.end());
  }
  return record;
}

bool Contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// The first field in which two records differ; lists are those of a group's members.
Status Compare(const LinearPlan& plan, const LinearTerms& terms, int rank, const int64_t* own,
               int other, const int64_t* theirs) {
  const size_t num_terms = terms.terms.size();
  const auto size = static_cast<size_t>(plan.rank_size);
  for (size_t i = 0; i < 1 + num_terms + 2 * size; ++i) {
    const bool gathers = i > num_terms && i <= num_terms + size;
    if (gathers && !Contains(plan.layout.gather.ranks, other)) continue;
    if (i > num_terms + size && !Contains(plan.layout.scatter.ranks, other)) continue;
    if (own[i] == theirs[i]) continue;
    std::string name = i == 0 ? "dtype" : "";
    if (i > 0 && i <= num_terms) name = terms.terms[i - 1].name;
    if (gathers) name = Concat("gatherRows[", i - 1 - num_terms, "]");
    if (name.empty()) name = Concat("scatterRows[", i - 1 - num_terms - size, "]");
    const auto show = [&](int64_t value) {
      return i == 0 ? Name(static_cast<DType>(value)) : std::to_string(value);
    };
    return Error(ERROR_RANK_MISMATCH, "LinearParallel: the ranks disagree: ", name, " is ",
                 show(own[i]), " on rank ", rank, " and ", show(theirs[i]), " on rank ", other);
  }
  return Ok();
}

// Those who disagree learn it before anything moves.
Status Agree(const LinearPlan& plan, const LinearTerms& terms, Communicator* communicator) {
  const std::vector<int64_t> own = Record(plan, terms);
  const auto length = static_cast<int64_t>(own.size());
  const std::vector<int64_t> counts(static_cast<size_t>(plan.rank_size), length);
  std::vector<int64_t> displs;
  for (int r = 0; r < plan.rank_size; ++r) displs.push_back(r * length);
  std::vector<int64_t> all(own.size() * counts.size());
  AllGatherVCall call;
  call.kind = CallKind::kLinearParallel;
  call.dtype = DType::kInt64;
  call.root = terms.root;
  call.x = own.data();
  call.output = all.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  // Against a rank that runs fused, this is what differs.
  std::strcpy(call.label.type, "pipeline, COLLOPS_FUSED");
  RETURN_IF_ERROR(communicator->AllGatherV(call));
  for (int r = 0; r < plan.rank_size; ++r) {
    const Status same =
        Compare(plan, terms, communicator->rank(), own.data(), r, all.data() + r * length);
    if (same.ok()) continue;
    communicator->EndGroup(same);
    return same;
  }
  return Ok();
}

// The communicator of one of the two groups, which all operations on such a grid share. All ranks
// are the communicator there is, and one rank alone needs none.
Status FindPart(const char* name, const std::vector<int>& ranks, int index, int other_index,
                const LinearTerms& terms, Communicator* communicator,
                std::shared_ptr<Communicator>* part) {
  const int size = static_cast<int>(ranks.size());
  if (size == communicator->size() || size == 1) return Ok();
  std::string grid = name;
  for (size_t i = 0; i < 4; ++i) grid += Concat(" ", terms.terms[i].value);  // type and its grid
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
    call.dtype = DType::kFloat32;
    call.x = tile_;
    call.x_shape.num_dims = 2;
    call.x_shape.dims[0] = layout.total_rows;
    call.x_shape.dims[1] = columns;
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
                         const LinearTerms& terms, std::byte* workspace,
                         Communicator* communicator) {
  const LinearLayout& layout = plan.layout;
  RETURN_IF_ERROR(Agree(plan, terms, communicator));
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> scatter;
  const auto run = [&]() -> Status {
    RETURN_IF_ERROR(FindPart("gather", layout.gather.ranks, layout.gather.index,
                             layout.scatter.index, terms, communicator, &gather));
    RETURN_IF_ERROR(FindPart("scatter", layout.scatter.ranks, layout.scatter.index,
                             layout.gather.index, terms, communicator, &scatter));
    return PipelineLinear(plan, tensors, workspace, gather ? gather.get() : communicator,
                          scatter ? scatter.get() : communicator)
        .Run();
  };
  const Status status = run();
  if (status.ok()) return status;
  // The ranks that wait in another group hear of it there, and tell theirs.
  for (Communicator* group : {gather.get(), scatter.get(), communicator}) {
    if (group != nullptr) group->EndGroup(status);
  }
  return status;
}

}  // namespace collops

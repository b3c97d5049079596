#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "operators/linear_parallel/engine.h"
#include "operators/linear_parallel/product.h"

namespace collops {
namespace {

Status Accepts(const EnginePlace& place) {
  CHECK_ARG(!place.alone() || place.rank_size == 1, ERROR_UNSUPPORTED, "no rank needs another one");
  return Ok();
}

// Rows of one member in one AllGatherV: about this many bytes, in whole pieces that can be packed.
constexpr int64_t kGatherBytes = 1 << 20;

int64_t RowsAtOnce(const LinearPlan& plan) {
  const int64_t unit = plan.compute->row_unit();
  return unit * std::max<int64_t>(kGatherBytes / unit / RowBytes(plan), 1);
}

bool Gathers(const LinearPlan& plan) {
  return plan.layout.gather.ranks.size() > 1;
}

int64_t OwnRows(const LinearLayout& layout) {
  return layout.scatter.rows[static_cast<size_t>(layout.scatter.index)];
}

// This rank's sums of one strip of columns.
int64_t SumBytes(const LinearPlan& plan) {
  if (!SumsPartials(plan)) return 0;
  return OwnRows(plan.layout) * plan.product->StripColumns(0) * int64_t{sizeof(float)};
}

// The rows that one AllGatherV brings.
int64_t GatherBytes(const LinearPlan& plan) {
  if (!Gathers(plan)) return 0;
  int64_t rows = 0;
  for (const int64_t n : plan.layout.gather.rows) rows += std::min(n, RowsAtOnce(plan));
  return rows * RowBytes(plan);
}

void PlanMemory(LinearPlan* plan) {
  Places places = PlaceRows(plan);
  plan->memory.tile = places.Take(TileBytes(*plan));
  plan->memory.sum = places.Take(SumBytes(*plan));
  plan->memory.gathered = places.Take(GatherBytes(*plan));
  plan->memory.bytes = places.bytes();
}

// What each rank tells the others before anything moves, of the same length on every rank: dtype,
// terms, the first ranks of its two groups, and their lists, which the members agree on.
std::vector<int64_t> Record(const LinearPlan& plan) {
  const auto size = static_cast<size_t>(plan.rank_size);
  std::vector<int64_t> record = {static_cast<int64_t>(plan.dtype)};
  for (const CallTerm& term : plan.terms.terms) record.push_back(term.value);
  const RowGroup* groups[] = {&plan.layout.gather, &plan.layout.scatter};
  for (const RowGroup* group : groups) record.push_back(group->ranks.front());
  for (const RowGroup* group : groups) {
    std::vector<int64_t> list = group->rows;
    list.resize(size);
    record.insert(record.end(), list.begin(), list.end());
  }
  return record;
}

// What all ranks said.
class Records {
 public:
  Records(const LinearTerms& terms, int rank_size, std::vector<int64_t> all)
      : terms_(terms), size_(static_cast<size_t>(rank_size)), all_(std::move(all)) {}

  // The first field in which any two of them differ, the same on every rank: also a rank whose own
  // groups agree hears of it.
  Status Compare() const {
    for (size_t r = 0; r < size_; ++r) {
      RETURN_IF_ERROR(CompareTerms(0, r));
      RETURN_IF_ERROR(CompareList("gatherRows", Group(r, 0), r, 0));
      RETURN_IF_ERROR(CompareList("scatterRows", Group(r, 1), r, 1));
    }
    return Ok();
  }

 private:
  const int64_t* Of(size_t rank) const { return all_.data() + rank * (all_.size() / size_); }
  size_t num_terms() const { return terms_.terms.size(); }
  size_t Group(size_t rank, size_t which) const {
    // A peer's number is not trusted.
    return std::min(static_cast<size_t>(Of(rank)[1 + num_terms() + which]), size_ - 1);
  }

  Status CompareTerms(size_t a, size_t b) const {
    const auto dtype = [](int64_t value) { return Name(static_cast<DType>(value)); };
    if (Of(a)[0] != Of(b)[0]) return Differ("dtype", dtype(Of(a)[0]), a, dtype(Of(b)[0]), b);
    for (size_t i = 0; i < num_terms(); ++i) {
      const int64_t mine = Of(a)[1 + i];
      const int64_t theirs = Of(b)[1 + i];
      if (mine != theirs) return Differ(terms_.terms[i].name, mine, a, theirs, b);
    }
    return Ok();
  }

  Status CompareList(const char* name, size_t a, size_t b, size_t which) const {
    const size_t begin = 3 + num_terms() + which * size_;
    for (size_t i = 0; i < size_; ++i) {
      const int64_t mine = Of(a)[begin + i];
      const int64_t theirs = Of(b)[begin + i];
      if (mine != theirs) return Differ(Concat(name, "[", i, "]"), mine, a, theirs, b);
    }
    return Ok();
  }

  template <typename Value>
  static Status Differ(const std::string& name, const Value& mine, size_t a, const Value& theirs,
                       size_t b) {
    return Error(ERROR_RANK_MISMATCH, "LinearParallel: the ranks disagree: ", name, " is ", mine,
                 " on rank ", a, " and ", theirs, " on rank ", b);
  }

  const LinearTerms& terms_;
  size_t size_;
  std::vector<int64_t> all_;
};

// Those who disagree learn it before anything moves: on the engine, by the label of this call, or
// on what the call is.
Status Agree(const LinearRun& run) {
  const LinearPlan& plan = run.plan;
  const std::vector<int64_t> own = Record(plan);
  const auto length = static_cast<int64_t>(own.size());
  const std::vector<int64_t> counts(static_cast<size_t>(plan.rank_size), length);
  std::vector<int64_t> displs;
  for (int r = 0; r < plan.rank_size; ++r) displs.push_back(r * length);
  std::vector<int64_t> all(own.size() * counts.size());
  AllGatherVCall call;
  call.kind = CallKind::kLinearParallel;
  call.dtype = DType::kInt64;
  call.root = plan.terms.root;
  call.x = own.data();
  call.output = all.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  const std::string label = Concat(plan.engine->name, ", COLLOPS_FUSED");
  label.copy(call.label.type, sizeof(call.label.type) - 1);
  RETURN_IF_ERROR(run.communicator->AllGatherV(call));
  const Status same = Records(plan.terms, plan.rank_size, std::move(all)).Compare();
  if (!same.ok()) run.communicator->EndGroup(same);
  return same;
}

// The communicators of the two groups, which all operations on such a grid share. A group of all
// ranks has the communicator there is, and one rank alone needs none: both are null here.
struct Parts {
  std::shared_ptr<Communicator> gather;
  std::shared_ptr<Communicator> scatter;
};

Status FindPart(const char* name, const RowGroup& group, int other_index, const LinearRun& run,
                std::shared_ptr<Communicator>* part) {
  const int size = static_cast<int>(group.ranks.size());
  if (size == run.communicator->size() || size == 1) return Ok();
  std::string grid = name;  // with its type
  for (size_t i = 0; i < 4; ++i) grid += Concat(" ", run.plan.terms.terms[i].value);
  return run.communicator->KeptSplit(grid, other_index, group.index, part);
}

Status FindParts(const LinearRun& run, Parts* parts) {
  const LinearLayout& layout = run.plan.layout;
  RETURN_IF_ERROR(FindPart("gather", layout.gather, layout.scatter.index, run, &parts->gather));
  return FindPart("scatter", layout.scatter, layout.gather.index, run, &parts->scatter);
}

// Ends the call for all ranks; the reason is what they hear.
Status End(const LinearRun& run, const Parts& parts, const Status& status) {
  // A part that has met on one rank alone sees the others hang up; why, they told all ranks before.
  const Status told = run.communicator->FindLossAmong({}, true);
  const Status why = status.code() == ERROR_PEER_LOST && !told.ok() ? told : status;
  // The ranks that wait in another group hear of it there, and tell theirs.
  for (Communicator* group : {run.communicator, parts.gather.get(), parts.scatter.get()}) {
    if (group != nullptr) group->EndGroup(why);
  }
  return why;
}

// AllGatherV of some rows after the other into packed rows, then for each strip of columns the
// product and its ReduceScatterV in float32.
class PipelineLinear {
 public:
  PipelineLinear(const LinearRun& run, const Parts& parts)
      : run_(run),
        plan_(run.plan),
        rows_(run),
        strip_(run),
        tile_(reinterpret_cast<float*>(run.workspace + plan_.memory.tile)),
        sum_(reinterpret_cast<float*>(run.workspace + plan_.memory.sum)),
        gathered_(run.workspace + plan_.memory.gathered),
        gather_(parts.gather != nullptr ? parts.gather.get() : run.communicator),
        scatter_(parts.scatter != nullptr ? parts.scatter.get() : run.communicator) {}

  Status Run() {
    RETURN_IF_ERROR(Gather());
    for (int64_t strip = 0; strip < plan_.product->num_strips(); ++strip) {
      RETURN_IF_ERROR(Multiply(strip));
      RETURN_IF_ERROR(SumsPartials(plan_) ? Sum(strip) : Store(strip));
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
    const auto* x = static_cast<const std::byte*>(run_.tensors.x);
    const std::vector<int64_t>& rows = plan_.layout.gather.rows;
    const int64_t row_bytes = RowBytes(plan_);
    if (!Gathers(plan_)) return rows_.Take(0, {x, row_bytes, 0, rows[0], 0, row_bytes});
    const int64_t most = *std::max_element(rows.begin(), rows.end());
    for (int64_t row = 0; row < most; row += RowsAtOnce(plan_)) {
      RETURN_IF_ERROR(GatherFrom(row, x + row * row_bytes));
    }
    return rows_.joins() ? rows_.Join() : Ok();
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
    call.stream = run_.stream;
    RETURN_IF_ERROR(InGroup(plan_.layout.gather.ranks, gather_->AllGatherV(call)));
    const int64_t row_bytes = RowBytes(plan_);
    for (size_t g = 0; g < counts.size(); ++g) {
      const int64_t rows = counts[g] / plan_.layout.k;
      if (rows == 0) continue;
      const std::byte* from = gathered_ + displs[g] * SizeOf(plan_.dtype);
      RETURN_IF_ERROR(rows_.Take(g, {from, row_bytes, row, rows, 0, row_bytes}));
    }
    return Ok();
  }

  Status Multiply(int64_t strip) {
    const int64_t ld = plan_.product->StripColumns(strip);
    std::vector<kernels::ProductTask> tasks;
    if (rows_.joined()) {
      tasks.push_back(LinearStrip::Task(rows_.all(), tile_));
    } else {
      for (const GatheredRows::Group& group : rows_.groups()) {
        tasks.push_back(LinearStrip::Task(group, tile_ + group.first_row * ld));
      }
    }
    for (int64_t k_block = 0; k_block < plan_.product->num_k_blocks(); ++k_block) {
      RETURN_IF_ERROR(strip_.Multiply(tasks, strip, k_block, ld));
    }
    return Ok();
  }

  Status Store(int64_t strip) {
    const int64_t ld = plan_.product->StripColumns(strip);
    return strip_.Store(&tile_, 1, ld, strip, 0, plan_.layout.total_rows);
  }

  Status Sum(int64_t strip) {
    const LinearLayout& layout = plan_.layout;
    const int64_t columns = plan_.product->StripColumns(strip);
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
    call.stream = run_.stream;
    RETURN_IF_ERROR(InGroup(layout.scatter.ranks, scatter_->ReduceScatterV(call)));
    return strip_.Store(&sum_, 1, columns, strip, 0, OwnRows(layout));
  }

  const LinearRun& run_;
  const LinearPlan& plan_;
  GatheredRows rows_;
  LinearStrip strip_;
  float* tile_;
  float* sum_;
  std::byte* gathered_;
  Communicator* gather_;
  Communicator* scatter_;
};

Status Run(const LinearRun& run) {
  RETURN_IF_ERROR(Agree(run));
  Parts parts;
  Status status = FindParts(run, &parts);
  if (status.ok()) status = PipelineLinear(run, parts).Run();
  return status.ok() ? status : End(run, parts, status);
}

}  // namespace

const Engine kPipeline = {"pipeline", &Accepts, &PlanMemory, &Run};

}  // namespace collops

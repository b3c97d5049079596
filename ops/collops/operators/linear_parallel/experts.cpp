// The CPU's way of LinearParallel with experts: one exchange of rows and one product after the
// other of the experts that have any.
#include "collops/operators/linear_parallel/experts.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

using kernels::GemmPlan;

int64_t RowsAtOnce(const ExpertsLayout& layout) {
  return std::min(layout.most_expert_rows(), kMostRowsAtOnce);
}

// Consecutive rows in memory.
template <typename Byte>
struct RowRun {
  Byte* data;
  int64_t rows;
};
using RowSources = std::vector<RowRun<const std::byte>>;
using RowTargets = std::vector<RowRun<std::byte>>;

// Calls take(data, rows) for the rows [first, first + rows) of all runs, piece by piece.
template <typename Byte, typename Take>
void ForRows(const std::vector<RowRun<Byte>>& runs, int64_t row_bytes, int64_t first, int64_t rows,
             const Take& take) {
  int64_t begin = 0;
  for (const RowRun<Byte>& run : runs) {
    const int64_t from = std::max(first, begin);
    const int64_t to = std::min(first + rows, begin + run.rows);
    if (from < to) take(run.data + (from - begin) * row_bytes, to - from);
    begin += run.rows;
  }
}

// What the products of a call have in common. Lives during the call; waits for no one.
class ExpertProducts {
 public:
  ExpertProducts(const ExpertsPlan& plan, const ExpertsTensors& tensors, std::byte* workspace)
      : plan_(plan), tensors_(tensors), workspace_(workspace) {}

  // Multiplies the rows of all sources, one after the other, by the weight of an expert, which is
  // read once for every RowsAtOnce() of them, and puts the products, with the residual if there is
  // one, into the targets as `dtype`. Without rows it does not touch the weight.
  // `token_scales`: of these rows, one after the other in the same way; none where there are none.
  void Multiply(int64_t expert, const RowSources& from, const RowSources& token_scales,
                const RowTargets& to, DType dtype, const void* residual) const {
    const GemmPlan& gemm = plan_.gemm;
    kernels::TileScale scale;
    if (plan_.is_quantised()) scale.scale = Floats(plan_.scales) + expert * gemm.n;
    const int64_t most = RowsAtOnce(plan_.layout);
    int64_t all = 0;
    for (const auto& run : from) all += run.rows;
    const auto* const weight = static_cast<const std::byte*>(tensors_.weight) +
                               expert * gemm.k * gemm.n * SizeOf(plan_.dtype);
    for (int64_t first = 0; first < all; first += most) {
      const int64_t rows = std::min(most, all - first);
      Pack(from, first, rows);
      if (plan_.has_token_scale) scale.token_scale = TokenScales(token_scales, first, rows);
      for (int64_t strip = 0; strip < gemm.num_strips(); ++strip) {
        MultiplyStrip(gemm, panels(), rows, weight, strip, workspace_ + plan_.weight_block, tile(),
                      scale);
        Store(to, first, rows, strip, dtype, residual);
      }
    }
  }

 private:
  std::byte* panels() const { return workspace_ + plan_.panels; }
  float* Floats(int64_t place) const { return reinterpret_cast<float*>(workspace_ + place); }
  float* tile() const { return Floats(plan_.tile); }

  // Those of some rows together.
  const float* TokenScales(const RowSources& from, int64_t first, int64_t rows) const {
    std::byte* to = workspace_ + plan_.row_scales;
    ForRows(from, sizeof(float), first, rows, [&](const std::byte* data, int64_t count) {
      const auto bytes = static_cast<size_t>(count) * sizeof(float);
      std::memcpy(to, data, bytes);
      to += bytes;
    });
    return Floats(plan_.row_scales);
  }

  // Whole panels are packed from where the rows are, and those with rows of several sources from a
  // copy.
  void Pack(const RowSources& from, int64_t first, int64_t all) const {
    const GemmPlan& gemm = plan_.gemm;
    const int64_t row_bytes = gemm.k * SizeOf(plan_.dtype);
    std::byte* const edge = workspace_ + plan_.edge;
    int64_t packed = 0;
    int64_t copied = 0;
    const auto pack = [&](const std::byte* data, int64_t rows) {
      kernels::PackRows(gemm, data, gemm.k, packed, rows, 0, gemm.k, all, panels());
      packed += rows;
    };
    ForRows(from, row_bytes, first, all, [&](const std::byte* data, int64_t rows) {
      while (rows > 0) {
        int64_t taken = std::min(rows, gemm.row_tile - copied);
        const bool is_last = packed + copied + rows == all;
        if (copied == 0 && (is_last || taken == gemm.row_tile)) {
          taken = is_last ? rows : rows / gemm.row_tile * gemm.row_tile;
          pack(data, taken);
        } else {
          kernels::Copy(edge + copied * row_bytes, data, taken * row_bytes);
          copied += taken;
          if (copied == gemm.row_tile || packed + copied == all) {
            pack(edge, copied);
            copied = 0;
          }
        }
        data += taken * row_bytes;
        rows -= taken;
      }
    });
  }

  void Store(const RowTargets& to, int64_t first, int64_t rows, int64_t strip, DType dtype,
             const void* residual) const {
    const GemmPlan& gemm = plan_.gemm;
    const int64_t columns = gemm.StripColumns(strip);
    const int64_t row_bytes = gemm.n * SizeOf(dtype);
    const int64_t begin = gemm.StripBegin(strip) * SizeOf(dtype);
    const auto* const added = static_cast<const std::byte*>(residual);
    const float* next = tile();
    ForRows(to, row_bytes, first, rows, [&](std::byte* data, int64_t stored) {
      kernels::StoreSum(dtype, &next, 1, columns, added == nullptr ? nullptr : added + begin,
                        stored, columns, data + begin, gemm.n);
      next += stored * columns;
    });
  }

  const ExpertsPlan& plan_;
  const ExpertsTensors& tensors_;
  std::byte* const workspace_;
};

// One call. Rows of this rank for its own experts stay where they are.
class ExpertsCall {
 public:
  ExpertsCall(const ExpertsPlan& plan, const ExpertRows& rows, const ExpertsTensors& tensors,
              std::byte* workspace)
      : plan_(plan),
        layout_(plan.layout),
        rows_(rows),
        tensors_(tensors),
        workspace_(workspace),
        products_(plan, tensors, workspace) {}

  Status Run(const Agreement& agreement, Communicator* communicator) const {
    if (plan_.is_quantised()) {
      ReadScales(plan_.scale_dtype, tensors_.scale, layout_.experts * layout_.n,
                 reinterpret_cast<float*>(workspace_ + plan_.scales));
    }
    if (layout_.to_experts) {
      COLLOPS_RETURN_IF_ERROR(Exchange(RowsToMove(), agreement, communicator));
      if (plan_.has_token_scale) {
        const Moved scales = {DType::kFloat32, 1, tensors_.token_scale,
                              workspace_ + plan_.moved_scales};
        COLLOPS_RETURN_IF_ERROR(Exchange(scales, agreement.WithoutTerms(), communicator));
      }
      MultiplyReceived();
      ZeroBehind(rows_.of_experts());
      return Ok();
    }
    MultiplyForSources();
    COLLOPS_RETURN_IF_ERROR(Exchange(RowsToMove(), agreement, communicator));
    if (plan_.sends_partials()) AddUp();
    ZeroBehind(rows_.own());
    return Ok();
  }

 private:
  // Blocks of rows of one list, one for each rank.
  struct Blocks {
    std::vector<int64_t> counts;
    std::vector<int64_t> displs;
  };

  // Rows with so many elements each, from here to there.
  struct Moved {
    DType dtype;
    int64_t columns;
    const void* x;
    void* output;
  };

  Moved RowsToMove() const {
    std::byte* const moved = workspace_ + plan_.moved;
    if (layout_.to_experts) return {plan_.dtype, layout_.k, tensors_.x, moved};
    return {plan_.product_dtype(), layout_.n, moved, Returned()};
  }

  // This rank's rows, of which every member of a place gets, or sends back, the same.
  Blocks OwnBlocks(int64_t columns) const {
    Blocks blocks;
    for (int r = 0; r < layout_.rank_size; ++r) {
      const bool moves = r != layout_.rank;
      const int64_t tile = plan_.sends_partials() ? (r % layout_.tp_size) * rows_.own() : 0;
      blocks.counts.push_back(moves ? rows_.to_rank()[r] * columns : 0);
      blocks.displs.push_back((tile + rows_.begin_of()[r]) * columns);
    }
    return blocks;
  }

  // Rows of this rank's experts, by the ranks they are from.
  Blocks MovedBlocks(int64_t columns) const {
    Blocks blocks;
    int64_t end = 0;
    for (int s = 0; s < layout_.rank_size; ++s) {
      const bool moves = s != layout_.rank;
      blocks.counts.push_back(moves ? rows_.from_rank()[s] * columns : 0);
      blocks.displs.push_back(end);
      end += blocks.counts.back();
    }
    return blocks;
  }

  Status Exchange(const Moved& rows, const Agreement& agreement, Communicator* communicator) const {
    const Blocks own = OwnBlocks(rows.columns);
    const Blocks moved = MovedBlocks(rows.columns);
    const Blocks& sends = layout_.to_experts ? own : moved;
    const Blocks& receives = layout_.to_experts ? moved : own;
    ExchangeVCall call;
    call.agreement = &agreement;
    call.dtype = rows.dtype;
    call.x = rows.x;
    call.send_counts = sends.counts.data();
    call.sdispls = sends.displs.data();
    call.output = rows.output;
    call.recv_counts = receives.counts.data();
    call.rdispls = receives.displs.data();
    return communicator->ExchangeV(call);
  }

  // Where the products of this rank's rows arrive.
  std::byte* Returned() const {
    return plan_.sends_partials() ? workspace_ + plan_.partials
                                  : static_cast<std::byte*>(tensors_.output);
  }

  // Where rows of this rank for one of its own experts are among this rank's rows.
  int64_t BeginOfOwn(int64_t expert) const {
    return rows_.begin_of()[layout_.rank] + rows_.begin_from(layout_.rank, expert);
  }

  // Where the rows of an expert, or their scales, are that have come here: `own` are this rank's.
  RowSources Received(int64_t expert, const void* own, int64_t moved, int64_t row_bytes) const {
    RowSources from;
    const Blocks blocks = MovedBlocks(row_bytes);
    for (int s = 0; s < layout_.rank_size; ++s) {
      const int64_t rows = rows_.from(s, expert);
      if (rows == 0) continue;
      const std::byte* const data =
          s == layout_.rank ? static_cast<const std::byte*>(own) + BeginOfOwn(expert) * row_bytes
                            : workspace_ + moved + blocks.displs[static_cast<size_t>(s)] +
                                  rows_.begin_from(s, expert) * row_bytes;
      from.push_back({data, rows});
    }
    return from;
  }

  void MultiplyReceived() const {
    const int64_t row_bytes = layout_.k * SizeOf(plan_.dtype);
    const int64_t out_bytes = layout_.n * SizeOf(plan_.output_dtype);
    for (int64_t l = 0; l < layout_.experts; ++l) {
      if (rows_.for_expert(l) == 0) continue;
      RowSources from = Received(l, tensors_.x, plan_.moved, row_bytes);
      RowSources scales;
      if (plan_.has_token_scale) {
        scales = Received(l, tensors_.token_scale, plan_.moved_scales, sizeof(float));
      }
      const int64_t first = rows_.begin_of_expert(l);
      Return(&from, first, row_bytes);
      std::byte* const output = static_cast<std::byte*>(tensors_.output) + first * out_bytes;
      products_.Multiply(l, from, scales, {{output, rows_.for_expert(l)}}, plan_.output_dtype,
                         tensors_.residual);
    }
  }

  // Copies an expert's rows to where the caller wants them, and lets them be read there.
  void Return(RowSources* from, int64_t first, int64_t row_bytes) const {
    if (tensors_.rows == nullptr) return;
    std::byte* const begin = static_cast<std::byte*>(tensors_.rows) + first * row_bytes;
    int64_t copied = 0;
    for (const auto& [data, rows] : *from) {
      kernels::Copy(begin + copied * row_bytes, data, rows * row_bytes);
      copied += rows;
    }
    *from = {{begin, copied}};
  }

  void MultiplyForSources() const {
    const DType dtype = plan_.product_dtype();
    const int64_t row_bytes = layout_.n * SizeOf(dtype);
    const Blocks moved = MovedBlocks(row_bytes);
    const Blocks own = OwnBlocks(row_bytes);
    const auto* const x = static_cast<const std::byte*>(tensors_.x);
    for (int64_t l = 0; l < layout_.experts; ++l) {
      if (rows_.for_expert(l) == 0) continue;
      RowTargets to;
      for (int s = 0; s < layout_.rank_size; ++s) {
        const auto rank = static_cast<size_t>(s);
        std::byte* const block = s == layout_.rank ? Returned() + own.displs[rank]
                                                   : workspace_ + plan_.moved + moved.displs[rank];
        const int64_t rows = rows_.from(s, l);
        if (rows > 0) to.push_back({block + rows_.begin_from(s, l) * row_bytes, rows});
      }
      const int64_t first = rows_.begin_of_expert(l);
      const int64_t rows = rows_.for_expert(l);
      RowSources scales;
      if (plan_.has_token_scale) {
        const auto* const of_rows = static_cast<const std::byte*>(tensors_.token_scale);
        scales = {{of_rows + first * static_cast<int64_t>(sizeof(float)), rows}};
      }
      products_.Multiply(l, {{x + first * layout_.k * SizeOf(plan_.dtype), rows}}, scales, to,
                         dtype, nullptr);
    }
  }

  // Over the members of each place, in their order.
  void AddUp() const {
    std::vector<const float*> tiles;
    for (int t = 0; t < layout_.tp_size; ++t) {
      tiles.push_back(reinterpret_cast<const float*>(workspace_ + plan_.partials) +
                      t * rows_.own() * layout_.n);
    }
    kernels::StoreSum(plan_.output_dtype, tiles.data(), layout_.tp_size, layout_.n,
                      tensors_.residual, rows_.own(), layout_.n, tensors_.output, layout_.n);
  }

  void ZeroBehind(int64_t rows) const {
    const int64_t row_bytes = layout_.n * SizeOf(plan_.output_dtype);
    kernels::Zero(static_cast<std::byte*>(tensors_.output) + rows * row_bytes,
                  (layout_.output_rows - rows) * row_bytes);
  }

  const ExpertsPlan& plan_;
  const ExpertsLayout& layout_;
  const ExpertRows& rows_;
  const ExpertsTensors& tensors_;
  std::byte* const workspace_;
  const ExpertProducts products_;
};

}  // namespace

Status CheckExpertSupport(const Communicator& communicator, kernels::StreamCompute* compute,
                          DType dtype) {
  for (const DType moved : {dtype, DType::kFloat32}) {
    COLLOPS_RETURN_IF_ERROR(communicator.Supports(Primitive::kExchange, moved, ReduceOp::kSum));
  }
  return CheckProducts(communicator, compute);
}

Status PlanExperts(ExpertsPlan* plan) {
  const ExpertsLayout& layout = plan->layout;
  const int64_t columns = std::max({layout.k, layout.n, int64_t{1}});
  const int64_t most_rows = std::max(layout.x_rows, layout.output_rows);
  const int64_t most = std::numeric_limits<int64_t>::max() / 64 / layout.tp_size / columns;
  COLLOPS_CHECK_ARG(most_rows <= most, ERROR_INVALID_TENSOR_SIZE, plan->voice.called,
                    ": a product of ", most_rows, " rows and ", layout.n,
                    " columns exceeds an int64: split the call");
  if (plan->stream_compute != nullptr) {
    COLLOPS_CHECK_ARG(!plan->is_quantised() || plan->stream_compute->has_int8(), ERROR_UNSUPPORTED,
                      plan->voice.called, ": a device does not multiply int8");
    return PlanExpertStreams(plan);
  }
  plan->gemm = kernels::PlanGemm(plan->dtype, layout.k, layout.n, layout.trans_weight);
  Places places(kernels::kGemmAlignment);
  const int64_t moved_columns = layout.to_experts ? layout.k : layout.n;
  plan->moved =
      places.Take(layout.most_expert_rows() * moved_columns * SizeOf(plan->moved_dtype()));
  if (plan->sends_partials()) {
    plan->partials = places.Take(layout.tp_size * layout.output_rows * layout.n *
                                 static_cast<int64_t>(sizeof(float)));
  }
  const int64_t rows = RowsAtOnce(layout);
  constexpr int64_t kFloat = sizeof(float);
  if (plan->is_quantised()) plan->scales = places.Take(layout.experts * layout.n * kFloat);
  if (plan->has_token_scale) {
    plan->moved_scales = places.Take(layout.to_experts ? layout.output_rows * kFloat : 0);
    plan->row_scales = places.Take(rows * kFloat);
  }
  plan->panels = places.Take(kernels::PackedRowsBytes(plan->gemm, rows));
  plan->edge = places.Take(plan->gemm.row_tile * layout.k * SizeOf(plan->dtype));
  plan->weight_block = places.Take(kernels::WeightBlockBytes(plan->gemm));
  plan->tile = places.Take(rows * plan->gemm.StripColumns(0) * static_cast<int64_t>(sizeof(float)));
  plan->bytes = places.bytes();
  return Ok();
}

Status MeetForExperts(const ExpertsPlan& plan, const Agreement& agreement, const Status& own,
                      Communicator* communicator, void* stream) {
  const char* const called = agreement.called();
  if (plan.stream_compute != nullptr) {
    const Status status =
        !own.ok() || stream != nullptr
            ? own
            : Error(ERROR_INVALID_STREAM, plan.voice.called,
                    ": there is no stream: pass tensors of the device, or stream=");
    return communicator->AgreeOnHost(agreement, status, stream);
  }
  // The caller's own fault is what it hears of, whatever becomes of the refusal.
  if (!own.ok()) static_cast<void>(communicator->Refuse(called, own));
  return own;
}

Status RunExperts(const ExpertsPlan& plan, const ExpertRows& rows, const ExpertsTensors& tensors,
                  const Agreement& agreement, void* workspace, Communicator* communicator,
                  void* stream) {
  if (plan.stream_compute != nullptr) {
    return RunExpertStreams(plan, rows, tensors, agreement, workspace, communicator, stream);
  }
  return ExpertsCall(plan, rows, tensors, Aligned(workspace, kernels::kGemmAlignment))
      .Run(agreement, communicator);
}

}  // namespace collops

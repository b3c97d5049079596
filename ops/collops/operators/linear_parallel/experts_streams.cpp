// The device's way of LinearParallel with experts: for each expert one exchange of its rows and one
// product.
#include <algorithm>
#include <memory>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/control/control.h"
#include "collops/operators/linear_parallel/experts.h"
#include "collops/operators/linear_parallel/product.h"

namespace collops {
namespace {

using kernels::DeviceMatrix;
using kernels::StreamStep;
using Steps = std::vector<StreamStep>;

constexpr int64_t kFloatBytes = sizeof(float);
// Of rows in float32 at a time, where a product needs any.
constexpr int64_t kFloatRowsBytes = 64 << 20;

// Whether the residual meets products of this rank's experts before they are rounded.
bool AddsResidual(const ExpertsPlan& plan) {
  return plan.layout.to_experts && plan.has_residual;
}

// Whether products are float32 or int32 first.
bool HasTile(const ExpertsPlan& plan) {
  return AddsResidual(plan) || plan.is_quantised();
}

DType ProductType(const ExpertsPlan& plan) {
  if (plan.is_quantised()) return DType::kInt32;
  return HasTile(plan) ? DType::kFloat32 : plan.product_dtype();
}

// Of what is left of a product in the end.
DType MadeType(const ExpertsPlan& plan) {
  return plan.layout.to_experts ? plan.output_dtype : plan.product_dtype();
}

// Rows of one product, at most.
int64_t RowsAtOnce(const ExpertsPlan& plan) {
  const int64_t most = plan.layout.most_expert_rows();
  if (!HasTile(plan) && !plan.converts) return most;
  const int64_t columns = std::max(plan.layout.k, plan.layout.n);
  return std::min(most, std::max(kFloatRowsBytes / columns / kFloatBytes, int64_t{1}));
}

// What a device computes: matrices in the call's tensors and workspace. All rows are consecutive.
class ExpertMatrices {
 public:
  ExpertMatrices(const ExpertsPlan& plan, const ExpertsTensors& tensors, std::byte* workspace,
                 const kernels::Beside& beside)
      : plan_(plan), tensors_(tensors), workspace_(workspace), beside_(beside) {}

  // An expert's weight in float32.
  StreamStep ConvertWeight(int64_t expert) const {
    const ExpertsLayout& layout = plan_.layout;
    const bool trans = layout.trans_weight;
    return Convert(Weight(expert), trans ? layout.n : layout.k, trans ? layout.k : layout.n,
                   plan_.float_weight);
  }

  // The products of some rows, with the residual if there is one on the way to the experts.
  // `tokens`: the scales of these rows, if they have any.
  Steps Multiply(int64_t expert, const std::byte* rows, const std::byte* tokens, int64_t count,
                 std::byte* to) const {
    const ExpertsLayout& layout = plan_.layout;
    Steps steps;
    StreamStep product;
    product.a = {rows, plan_.dtype, count, layout.k, layout.k, false};
    product.b = {Weight(expert), plan_.dtype, layout.k, layout.n, WeightLd(), layout.trans_weight};
    if (plan_.converts) {
      steps.push_back(Convert(rows, count, layout.k, plan_.float_rows));
      product.a = steps.back().c;
      product.b.data = workspace_ + plan_.float_weight;
      product.b.dtype = DType::kFloat32;
    }
    std::byte* const products = HasTile(plan_) ? workspace_ + plan_.tile : to;
    product.c = {products, ProductType(plan_), count, layout.n, layout.n, false};
    product.beside = beside_;
    steps.push_back(product);
    if (!HasTile(plan_)) return steps;
    const DeviceMatrix made = {to, MadeType(plan_), count, layout.n, layout.n, false};
    if (plan_.is_quantised()) steps.push_back(Scale(expert, product.c, tokens));
    if (AddsResidual(plan_)) {
      steps.push_back(Add(steps.back().c, Residual(), made));
    } else if (made.dtype == DType::kFloat32) {
      steps.back().c = made;
    } else {
      StreamStep round;
      round.kind = StreamStep::kConvert;
      round.a = steps.back().c;
      round.c = made;
      steps.push_back(round);
    }
    return steps;
  }

  // The sum of the members' products of some of this rank's rows, in their order, and the residual.
  Steps AddUp(int64_t own_rows, int64_t first, int64_t count) const {
    const int64_t row_bytes = plan_.layout.n * kFloatBytes;
    const auto partial = [&](int member) -> DeviceMatrix {
      return {workspace_ + plan_.partials + (member * own_rows + first) * row_bytes,
              DType::kFloat32,
              count,
              plan_.layout.n,
              plan_.layout.n,
              false};
    };
    const DeviceMatrix sum = partial(0);
    Steps steps;
    for (int m = 1; m < plan_.layout.tp_size; ++m) steps.push_back(Add(sum, partial(m), sum));
    if (plan_.has_residual) steps.push_back(Add(sum, Residual(), sum));
    auto* const output = static_cast<std::byte*>(tensors_.output);
    steps.back().c = Output(output + first * plan_.layout.n * SizeOf(plan_.output_dtype), count);
    return steps;
  }

 private:
  int64_t WeightLd() const { return plan_.layout.trans_weight ? plan_.layout.k : plan_.layout.n; }
  const std::byte* Weight(int64_t expert) const {
    return static_cast<const std::byte*>(tensors_.weight) +
           expert * plan_.layout.k * plan_.layout.n * SizeOf(plan_.dtype);
  }
  DeviceMatrix Residual() const {
    return {tensors_.residual, plan_.output_dtype, 1, plan_.layout.n, plan_.layout.n, false};
  }
  DeviceMatrix Output(std::byte* data, int64_t rows) const {
    return {data, plan_.output_dtype, rows, plan_.layout.n, plan_.layout.n, false};
  }
  StreamStep Convert(const std::byte* from, int64_t rows, int64_t columns, int64_t to) const {
    StreamStep step;
    step.kind = StreamStep::kConvert;
    step.a = {from, plan_.dtype, rows, columns, columns, false};
    step.c = {workspace_ + to, DType::kFloat32, rows, columns, columns, false};
    return step;
  }
  // What sums of int8 stand for, in their place. The float32 of an int64 is its lower half.
  StreamStep Scale(int64_t expert, const DeviceMatrix& sums, const std::byte* tokens) const {
    const bool is_half = plan_.scale_dtype == DType::kInt64;
    const int64_t n = plan_.layout.n;
    StreamStep step;
    step.kind = StreamStep::kScale;
    step.a = step.c = sums;
    step.c.dtype = DType::kFloat32;
    step.scale = {
        static_cast<const std::byte*>(tensors_.scale) + expert * n * SizeOf(plan_.scale_dtype),
        DType::kFloat32,
        1,
        n,
        is_half ? 2 : 1,
        true};
    if (plan_.has_token_scale) step.token = {tokens, DType::kFloat32, sums.rows, 1, 1, false};
    return step;
  }
  static StreamStep Add(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& c) {
    StreamStep step;
    step.kind = StreamStep::kAdd;
    step.a = a;
    step.b = b;
    step.c = c;
    return step;
  }

  const ExpertsPlan& plan_;
  const ExpertsTensors& tensors_;
  std::byte* const workspace_;
  const kernels::Beside beside_;
};

// The largest power of two that is at most this.
int64_t PowerBelow(int64_t rows) {
  int64_t power = 1;
  while (power <= rows / 2) power *= 2;
  return power;
}

// The most scratch memory that steps need for rows in any power of two, and for `most`: the numbers
// of rows are not known before the call, which cuts what needs more into such pieces.
template <typename StepsOf>
Status MostScratch(kernels::StreamCompute* compute, int64_t most, const StepsOf& steps_of,
                   int64_t* bytes) {
  for (int64_t rows = 1; rows > 0;) {
    if (rows > most) break;
    for (const StreamStep& step : steps_of(rows)) {
      int64_t needed = 0;
      COLLOPS_RETURN_IF_ERROR(compute->ScratchBytes(step, &needed));
      *bytes = std::max(*bytes, needed);
    }
    rows = rows == most ? 0 : std::min(2 * rows, most);
  }
  return Ok();
}

// Finds out whether operands become float32, and what scratch memory the steps need.
Status PlanSteps(ExpertsPlan* plan) {
  const ExpertsLayout& layout = plan->layout;
  std::byte nowhere{};  // whatever the addresses are
  ExpertsTensors tensors;
  tensors.x = tensors.weight = tensors.scale = tensors.residual = &nowhere;
  tensors.output = &nowhere;
  const ExpertMatrices matrices(*plan, tensors, &nowhere, {});
  kernels::StreamCompute* const compute = plan->stream_compute;
  const bool multiplies = layout.most_expert_rows() > 0;
  if (multiplies && ProductType(*plan) != plan->dtype && !plan->is_quantised()) {
    int64_t bytes = 0;
    const Steps direct = matrices.Multiply(0, &nowhere, nullptr, 1, &nowhere);
    const Status status = compute->ScratchBytes(direct.front(), &bytes);
    plan->converts = status.code() == ERROR_UNSUPPORTED;
    if (!plan->converts) COLLOPS_RETURN_IF_ERROR(status);
  }
  int64_t* const scratch = &plan->scratch_bytes;
  if (multiplies) {
    const auto products = [&](int64_t rows) {
      return matrices.Multiply(0, &nowhere, &nowhere, rows, &nowhere);
    };
    COLLOPS_RETURN_IF_ERROR(MostScratch(compute, RowsAtOnce(*plan), products, scratch));
  }
  if (multiplies && plan->converts) {
    const auto weight = [&](int64_t) { return Steps{matrices.ConvertWeight(0)}; };
    COLLOPS_RETURN_IF_ERROR(MostScratch(compute, 1, weight, scratch));
  }
  if (!plan->sends_partials()) return Ok();
  const auto sums = [&](int64_t rows) { return matrices.AddUp(rows, 0, rows); };
  return MostScratch(compute, layout.output_rows, sums, scratch);
}

// One call, which returns before its work is done. Exchanges are on a stream beside the caller's,
// where the ranks do not share a device: there an expert's rows move while another's are
// multiplied.
class ExpertStreams {
 public:
  ExpertStreams(const ExpertsPlan& plan, const ExpertRows& rows, const ExpertsTensors& tensors,
                const Agreement& agreement, std::byte* workspace, Communicator* communicator,
                void* stream)
      : plan_(plan),
        layout_(plan.layout),
        rows_(rows),
        tensors_(tensors),
        agreement_(agreement),
        moves_(agreement.WithoutTerms()),
        workspace_(workspace),
        communicator_(*communicator),
        compute_(*plan.stream_compute),
        share_(communicator->device_share()),
        overlaps_(layout_.rank_size > 1 && layout_.experts > 1 && share_.ranks == 1),
        matrices_(plan, tensors, workspace,
                  BesideProducts(*communicator, overlaps_, layout_.rank_size == 1)),
        marks_(compute_.NewMarks()),
        products_(stream),
        exchanges_(stream) {}

  Status Run() {
    if (overlaps_) COLLOPS_RETURN_IF_ERROR(compute_.SideStream(&exchanges_));
    const Status status = Enqueue();
    // Also after an error: what is on the other stream uses the caller's tensors.
    const Status joined = Order(exchanges_, products_);
    const Status kept = communicator_.KeepOnStream(agreement_.called(), products_, marks_);
    COLLOPS_RETURN_IF_ERROR(status);
    COLLOPS_RETURN_IF_ERROR(joined);
    return kept;
  }

 private:
  // On one stream nothing has to wait.
  Status Order(void* first, void* then) const {
    return first == then ? Ok() : marks_->Order(first, then);
  }

  Status Enqueue() {
    COLLOPS_RETURN_IF_ERROR(Order(products_, exchanges_));
    if (layout_.to_experts) {
      COLLOPS_RETURN_IF_ERROR(ExchangeFirst());
      COLLOPS_RETURN_IF_ERROR(MeetAfterProducts());
      return ZeroBehind(rows_.of_experts());
    }
    COLLOPS_RETURN_IF_ERROR(share_.in_one_context ? MultiplyFirst() : MultiplyInTurn());
    COLLOPS_RETURN_IF_ERROR(Order(exchanges_, products_));
    if (plan_.sends_partials()) COLLOPS_RETURN_IF_ERROR(AddUp());
    return ZeroBehind(rows_.own());
  }

  // A product's first use may load its code, which waits for kernels of other ranks of this
  // process: none of them may wait for this rank meanwhile.
  Status MeetAfterProducts() {
    if (!share_.in_one_context) return Ok();
    return communicator_.AgreeOnHost(agreement_, Ok(), products_);
  }

  Status ExchangeFirst() {
    std::vector<int> arrived(static_cast<size_t>(layout_.experts));
    for (int64_t l = 0; l < layout_.experts; ++l) {
      if (plan_.has_token_scale) {
        COLLOPS_RETURN_IF_ERROR(
            Exchange(l, DType::kFloat32, 1, tensors_.token_scale, workspace_ + plan_.moved_scales));
      }
      COLLOPS_RETURN_IF_ERROR(ExchangeRows(l));
      if (overlaps_) {
        COLLOPS_RETURN_IF_ERROR(marks_->Put(exchanges_, &arrived[static_cast<size_t>(l)]));
      }
    }
    for (int64_t l = 0; l < layout_.experts; ++l) {
      if (overlaps_) {
        COLLOPS_RETURN_IF_ERROR(marks_->Wait(products_, arrived[static_cast<size_t>(l)]));
      }
      COLLOPS_RETURN_IF_ERROR(Multiply(l));
    }
    return Ok();
  }

  Status MultiplyFirst() {
    for (int64_t l = 0; l < layout_.experts; ++l) COLLOPS_RETURN_IF_ERROR(Multiply(l));
    COLLOPS_RETURN_IF_ERROR(MeetAfterProducts());
    for (int64_t l = 0; l < layout_.experts; ++l) COLLOPS_RETURN_IF_ERROR(ExchangeRows(l));
    return Ok();
  }

  Status MultiplyInTurn() {
    for (int64_t l = 0; l < layout_.experts; ++l) {
      COLLOPS_RETURN_IF_ERROR(Multiply(l));
      COLLOPS_RETURN_IF_ERROR(Order(products_, exchanges_));
      COLLOPS_RETURN_IF_ERROR(ExchangeRows(l));
    }
    return Ok();
  }

  // Moves the rows of one expert of every rank, or their products.
  Status ExchangeRows(int64_t expert) const {
    const DType dtype = plan_.moved_dtype();
    if (layout_.to_experts) return Exchange(expert, dtype, layout_.k, tensors_.x, Received());
    return Exchange(expert, dtype, layout_.n, workspace_ + plan_.moved, Returned());
  }

  // Of rows with so many elements each.
  Status Exchange(int64_t expert, DType dtype, int64_t columns, const void* x, void* output) const {
    const bool sends = layout_.to_experts;
    std::vector<int64_t> own_counts, own_displs, expert_counts, expert_displs;
    for (int r = 0; r < layout_.rank_size; ++r) {
      const int64_t tile = plan_.sends_partials() ? (r % layout_.tp_size) * rows_.own() : 0;
      own_counts.push_back(rows_.to(r, expert) * columns);
      own_displs.push_back((tile + rows_.begin_to(r, expert)) * columns);
      expert_counts.push_back(rows_.from(r, expert) * columns);
      expert_displs.push_back(rows_.begin_at_expert(r, expert) * columns);
    }
    ExchangeVCall call;
    call.agreement = &moves_;
    call.dtype = dtype;
    call.x = x;
    call.send_counts = (sends ? own_counts : expert_counts).data();
    call.sdispls = (sends ? own_displs : expert_displs).data();
    call.output = output;
    call.recv_counts = (sends ? expert_counts : own_counts).data();
    call.rdispls = (sends ? expert_displs : own_displs).data();
    call.stream = exchanges_;
    return communicator_.ExchangeV(call);
  }

  // Where the rows of this rank's experts arrive, expert by expert.
  std::byte* Received() const {
    return tensors_.rows != nullptr ? static_cast<std::byte*>(tensors_.rows)
                                    : workspace_ + plan_.moved;
  }

  // Where the products of this rank's rows arrive.
  std::byte* Returned() const {
    return plan_.sends_partials() ? workspace_ + plan_.partials
                                  : static_cast<std::byte*>(tensors_.output);
  }

  Status Multiply(int64_t expert) const {
    const int64_t all = rows_.for_expert(expert);
    if (all == 0) return Ok();
    const int64_t first = rows_.begin_of_expert(expert);
    const auto* const from =
        layout_.to_experts ? Received() : static_cast<const std::byte*>(tensors_.x);
    std::byte* const to =
        layout_.to_experts ? static_cast<std::byte*>(tensors_.output) : workspace_ + plan_.moved;
    const int64_t from_bytes = layout_.k * SizeOf(plan_.dtype);
    const int64_t to_bytes = layout_.n * SizeOf(MadeType(plan_));
    const auto* const tokens = layout_.to_experts
                                   ? workspace_ + plan_.moved_scales
                                   : static_cast<const std::byte*>(tensors_.token_scale);
    if (plan_.converts) COLLOPS_RETURN_IF_ERROR(RunStep(matrices_.ConvertWeight(expert)));
    return InPieces(all, RowsAtOnce(plan_), [&](int64_t begin, int64_t rows) {
      const int64_t row = first + begin;
      const auto* const scales = plan_.has_token_scale ? tokens + row * kFloatBytes : nullptr;
      return matrices_.Multiply(expert, from + row * from_bytes, scales, rows, to + row * to_bytes);
    });
  }

  Status AddUp() const {
    return InPieces(rows_.own(), rows_.own(), [&](int64_t begin, int64_t rows) {
      return matrices_.AddUp(rows_.own(), begin, rows);
    });
  }

  // The steps of all rows, `most` at a time, or fewer where so many need more scratch memory than
  // was planned.
  template <typename StepsOf>
  Status InPieces(int64_t all, int64_t most, const StepsOf& steps_of) const {
    for (int64_t begin = 0; begin < all;) {
      int64_t rows = std::min(all - begin, most);
      bool fits = false;
      COLLOPS_RETURN_IF_ERROR(Fits(steps_of(begin, rows), &fits));
      if (!fits) rows = PowerBelow(rows);
      for (const StreamStep& step : steps_of(begin, rows)) {
        COLLOPS_RETURN_IF_ERROR(RunStep(step));
      }
      begin += rows;
    }
    return Ok();
  }

  Status Fits(const Steps& steps, bool* fits) const {
    *fits = true;
    for (const StreamStep& step : steps) {
      int64_t bytes = 0;
      COLLOPS_RETURN_IF_ERROR(compute_.ScratchBytes(step, &bytes));
      *fits = *fits && bytes <= plan_.scratch_bytes;
    }
    return Ok();
  }

  Status RunStep(const StreamStep& step) const {
    return compute_.Run(step, workspace_ + plan_.scratch, plan_.scratch_bytes, products_);
  }

  Status ZeroBehind(int64_t rows) const {
    const int64_t row_bytes = layout_.n * SizeOf(plan_.output_dtype);
    return compute_.SetZero(static_cast<std::byte*>(tensors_.output) + rows * row_bytes,
                            (layout_.output_rows - rows) * row_bytes, products_);
  }

  const ExpertsPlan& plan_;
  const ExpertsLayout& layout_;
  const ExpertRows& rows_;
  const ExpertsTensors& tensors_;
  const Agreement& agreement_;
  const Agreement moves_;  // the ranks have agreed on all that they move
  std::byte* const workspace_;
  Communicator& communicator_;
  kernels::StreamCompute& compute_;
  const DeviceShare share_;
  const bool overlaps_;
  const ExpertMatrices matrices_;
  const std::shared_ptr<kernels::StreamMarks> marks_;
  void* const products_;
  void* exchanges_;
};

}  // namespace

Status PlanExpertStreams(ExpertsPlan* plan) {
  return plan->stream_compute->OnDevice([plan]() -> Status {
    COLLOPS_RETURN_IF_ERROR(PlanSteps(plan));
    const ExpertsLayout& layout = plan->layout;
    const int64_t moved_columns = layout.to_experts ? layout.k : layout.n;
    Places places(plan->stream_compute->alignment());
    plan->moved =
        places.Take(layout.most_expert_rows() * moved_columns * SizeOf(plan->moved_dtype()));
    if (plan->sends_partials()) {
      plan->partials = places.Take(layout.tp_size * layout.output_rows * layout.n * kFloatBytes);
    }
    if (plan->has_token_scale && layout.to_experts) {
      plan->moved_scales = places.Take(layout.output_rows * kFloatBytes);
    }
    const int64_t rows = RowsAtOnce(*plan);
    if (HasTile(*plan)) plan->tile = places.Take(rows * layout.n * kFloatBytes);
    if (plan->converts) {
      plan->float_rows = places.Take(rows * layout.k * kFloatBytes);
      plan->float_weight = places.Take(layout.k * layout.n * kFloatBytes);
    }
    plan->scratch = places.Take(plan->scratch_bytes);
    plan->bytes = places.bytes();
    return Ok();
  });
}

Status RunExpertStreams(const ExpertsPlan& plan, const ExpertRows& rows,
                        const ExpertsTensors& tensors, const Agreement& agreement, void* workspace,
                        Communicator* communicator, void* stream) {
  std::byte* const begin = Aligned(workspace, plan.stream_compute->alignment());
  Status status = plan.layout.rank_size == 1 ? Ok() : plan.stream_compute->CheckStream(stream);
  if (status.ok()) {
    status = plan.stream_compute->OnDevice([&] {
      return ExpertStreams(plan, rows, tensors, agreement, begin, communicator, stream).Run();
    });
  }
  if (status.ok()) return status;
  control::Control& control = ControlOf(*communicator);
  return control.Fail(status, control.step_number());
}

}  // namespace collops

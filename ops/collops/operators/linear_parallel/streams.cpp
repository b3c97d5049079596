// The device's engine: the steps of the schedule on streams of the device.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collops/comm/even_split.h"
#include "collops/operators/linear_parallel/engine.h"

namespace collops {
namespace {

using kernels::DeviceMatrix;
using kernels::StreamStep;

int64_t OwnRoots(const LinearPlan& plan) {
  return RootsOf(plan, static_cast<size_t>(plan.layout.scatter.index));
}

// The rows of the sums of leaves that each rank of `scatter` adds up: those of its output, or an
// even share where every rank wants all of them.
EvenSplit SharesOfSums(const LinearPlan& plan, bool all_reduces) {
  const RowGroup& group = plan.layout.scatter;
  EvenSplit shares(plan.layout.total_rows, static_cast<int>(group.ranks.size()));
  if (!all_reduces) {
    shares.counts = group.rows;
    shares.displs = group.begin;
  }
  return shares;
}

Status AcceptsStreams(const EnginePlace& place) {
  COLLOPS_CHECK_ARG(!place.has_leaves || place.leaves_missing == nullptr, ERROR_UNSUPPORTED,
                    "it does not sum leaves: ", place.leaves_missing);
  COLLOPS_CHECK_ARG(!place.has_int8 || place.runs_int8, ERROR_UNSUPPORTED,
                    "it does not multiply int8");
  COLLOPS_CHECK_ARG(place.on_device, ERROR_UNSUPPORTED, "the tensors of backend ", place.backend,
                    " are not on a device");
  return Ok();
}

// Equal for calls in turn whose products have the same sizes and types.
uint64_t ProductsKey(const LinearRun& run, const LinearSchedule& schedule) {
  const uint64_t options =
      (run.plan.layout.trans_weight ? 1u : 0u) + (schedule.has_tiles ? 2u : 0u);
  return run.agreement.digest() * 4 + options;
}

// What a device computes in the steps: matrices in the call's tensors and workspace.
class StepMatrices {
 public:
  StepMatrices(const LinearPlan& plan, const LinearSchedule& schedule, const LinearTensors& tensors,
               std::byte* workspace, const kernels::Beside& beside)
      : plan_(plan),
        layout_(plan.layout),
        schedule_(schedule),
        tensors_(tensors),
        workspace_(workspace),
        beside_(beside),
        operands_(schedule.converts ? DType::kFloat32 : plan.dtype) {}

  // One after the other; none for collectives and where there are no elements.
  std::vector<StreamStep> Of(const LinearStep& step) const {
    switch (step.kind) {
      case LinearStep::kConvertWeight: {
        const bool trans = layout_.trans_weight;
        std::vector<StreamStep> steps;
        if (WidensWeight(plan_)) steps = Widened();
        if (schedule_.converts) {
          steps.push_back(Convert(weight(), schedule_.float_weight, trans ? layout_.n : layout_.k,
                                  trans ? layout_.k : layout_.n));
        }
        return steps;
      }
      case LinearStep::kMultiply: {
        if (step.piece.rows == 0 || layout_.k == 0) return {};
        std::vector<StreamStep> steps;
        if (schedule_.converts && step.strip == 0) {
          steps.push_back(
              Convert(RowsOf(step.piece), FloatRows(step.piece), step.piece.rows, layout_.k));
        }
        steps.push_back(Product(step));
        const bool scales = MultipliesInt8(plan_) || layout_.quant.has_token_scale;
        if (scales && !has_leaves()) {
          StreamStep scale = steps.back();
          scale.kind = StreamStep::kScale;
          scale.a = scale.c;
          scale.c.dtype = DType::kFloat32;
          steps.push_back(scale);
        }
        return steps;
      }
      case LinearStep::kStore:
        if (!schedule_.has_tiles || OwnRows(plan_) == 0) return {};
        return {Store(step.strip)};
      case LinearStep::kGather:
      case LinearStep::kSum:
        break;
    }
    return {};
  }

  // Where all rows are gathered.
  std::byte* gathered() const {
    if (tensors_.gathered != nullptr) return static_cast<std::byte*>(tensors_.gathered);
    return workspace_ + schedule_.gathered;
  }

  std::byte* tile(int64_t strip) const {
    return workspace_ + schedule_.tiles[strip % schedule_.num_slots()];
  }

  // What the sum of a strip brings this rank: its rows, or of leaves what it adds up to those.
  std::byte* slot(int64_t strip) const {
    return workspace_ + schedule_.slots[strip % schedule_.num_slots()];
  }

  // This rank's rows of a strip, summed, or as they were multiplied.
  std::byte* result(int64_t strip) const {
    return schedule_.sums && !schedule_.all_reduces ? slot(strip) : tile(strip);
  }

  bool has_leaves() const { return layout_.leaves.count > 0; }

  // The sums of some rows of a strip by the tree, from its slot.
  StreamStep TreeSum(int64_t strip, int64_t rows, std::byte* to) const {
    const int64_t columns = StripOf(strip).columns;
    StreamStep step;
    step.kind = StreamStep::kTreeSum;
    step.a = {slot(strip), DType::kFloat32, rows, columns, columns, false};
    step.c = {to, DType::kFloat32, rows, columns, columns, false};
    step.holders = &plan_.roots;
    step.tree = &plan_.tree;
    return step;
  }

  // Where the products of a step go.
  DeviceMatrix Products(const LinearStep& step) const {
    const int64_t columns = StripOf(step.strip).columns;
    const DType dtype = MultipliesInt8(plan_) && !has_leaves() ? DType::kInt32
                        : schedule_.has_tiles                  ? DType::kFloat32
                                                               : plan_.output_dtype;
    std::byte* const data =
        schedule_.has_tiles ? tile(step.strip) : static_cast<std::byte*>(tensors_.output);
    const int64_t ld = columns * OwnRoots(plan_);
    return {
        data + step.piece.begin * ld * SizeOf(dtype), dtype, step.piece.rows, columns, ld, false};
  }

  // Where the scales of all rows are gathered.
  std::byte* token_scales() const { return workspace_ + schedule_.token_scales; }

  StreamStep Product(const LinearStep& step) const {
    const ColumnStrip& strip = StripOf(step.strip);
    const std::byte* const rows =
        schedule_.converts ? workspace_ + FloatRows(step.piece) : RowsOf(step.piece);
    const auto* const from = schedule_.converts ? workspace_ + schedule_.float_weight : weight();
    const bool trans = layout_.trans_weight;
    const int64_t ld = trans ? layout_.k : layout_.n;
    const int64_t first = strip.begin * (trans ? ld : 1) * SizeOf(operands_);
    StreamStep product;
    product.a = {rows, operands_, step.piece.rows, layout_.k, layout_.k, false};
    product.b = {from + first, operands_, layout_.k, strip.columns, ld, trans};
    product.c = Products(step);
    product.beside = beside_;
    const LinearQuant& quant = layout_.quant;
    if (MultipliesInt8(plan_)) {
      product.scale = RowOf(quant.scale, tensors_.scale, step.strip);
      if (quant.bias.count > 0) product.bias = RowOf(quant.bias, tensors_.bias, step.strip);
    }
    if (quant.has_token_scale) {
      const bool in_x = step.piece.chunk == RowPiece::kInX;
      const auto* const tokens = in_x ? static_cast<const std::byte*>(tensors_.token_scale)
                                      : token_scales() + step.piece.begin * int64_t{sizeof(float)};
      product.token = {tokens, DType::kFloat32, step.piece.rows, 1, 1, false};
    }
    const LinearLeaves& leaves = layout_.leaves;
    if (has_leaves()) {
      const auto own = static_cast<size_t>(layout_.scatter.index);
      product.leaves = {leaves.count, leaves.k, leaves.begins[own], leaves.begins[own + 1]};
    }
    return product;
  }

 private:
  // As it is multiplied, or converted.
  const std::byte* weight() const {
    return WidensWeight(plan_) ? workspace_ + schedule_.wide_weight
                               : static_cast<const std::byte*>(tensors_.weight);
  }

  // What an int8 weight stands for, of one group of its rows after the other.
  std::vector<StreamStep> Widened() const {
    const LinearQuant& quant = layout_.quant;
    const bool trans = layout_.trans_weight;
    const int64_t ld = trans ? layout_.k : layout_.n;
    const int64_t rows = quant.group_k;
    std::vector<StreamStep> steps;
    for (int64_t group = 0; group < quant.groups; ++group) {
      const int64_t begin = group * rows;
      const int64_t count = std::min(rows, layout_.k - begin);
      const int64_t first = begin * (trans ? 1 : ld);
      const auto row_of = [&](const LinearQuant::Input& input, const void* data) -> DeviceMatrix {
        const int64_t columns = input.count == 1 ? 1 : layout_.n;
        const int64_t at = group * columns * SizeOf(input.dtype);
        return {static_cast<const std::byte*>(data) + at, input.dtype, 1, columns, columns, false};
      };
      StreamStep step;
      step.kind = StreamStep::kScale;
      step.a = {static_cast<const std::byte*>(tensors_.weight) + first,
                DType::kInt8,
                count,
                layout_.n,
                ld,
                trans};
      step.scale = row_of(quant.scale, tensors_.scale);
      if (quant.bias.count > 0) step.bias = row_of(quant.bias, tensors_.bias);
      step.c = {workspace_ + schedule_.wide_weight + first * SizeOf(plan_.dtype),
                plan_.dtype,
                count,
                layout_.n,
                ld,
                trans};
      steps.push_back(step);
    }
    return steps;
  }

  const ColumnStrip& StripOf(int64_t strip) const {
    return schedule_.strips[static_cast<size_t>(strip)];
  }

  const std::byte* RowsOf(const RowPiece& piece) const {
    return piece.chunk == RowPiece::kInX ? static_cast<const std::byte*>(tensors_.x)
                                         : gathered() + piece.begin * RowBytes(plan_);
  }
  // Where they are in float32, in the workspace.
  int64_t FloatRows(const RowPiece& piece) const {
    return schedule_.float_rows + piece.begin * layout_.k * int64_t{sizeof(float)};
  }

  StreamStep Convert(const void* from, int64_t to, int64_t rows, int64_t columns) const {
    StreamStep step;
    step.kind = StreamStep::kConvert;
    step.a = {from, plan_.dtype, rows, columns, columns, false};
    step.c = {workspace_ + to, DType::kFloat32, rows, columns, columns, false};
    return step;
  }

  // The numbers of a strip's columns, or the one for all. The float32 of an int64 is its lower
  // half.
  DeviceMatrix RowOf(const LinearQuant::Input& input, const void* data, int64_t strip) const {
    const bool is_one = input.count == 1;
    const int64_t begin = is_one ? 0 : StripOf(strip).begin * SizeOf(input.dtype);
    return {static_cast<const std::byte*>(data) + begin,
            input.dtype == DType::kInt64 ? DType::kFloat32 : input.dtype,
            1,
            is_one ? 1 : StripOf(strip).columns,
            input.dtype == DType::kInt64 ? 2 : 1,
            true};
  }

  // Rounds a strip's sums, and the residual, into the columns of the output.
  StreamStep Store(int64_t number) const {
    const ColumnStrip& strip = StripOf(number);
    const int64_t rows = OwnRows(plan_);
    const int64_t first = strip.begin * SizeOf(plan_.output_dtype);
    const auto columns_of = [&](const void* data, int64_t num_rows) -> DeviceMatrix {
      return {static_cast<const std::byte*>(data) + first,
              plan_.output_dtype,
              num_rows,
              strip.columns,
              layout_.n,
              false};
    };
    StreamStep step;
    if (has_leaves() && schedule_.sums && !schedule_.all_reduces) {
      step = TreeSum(number, rows, nullptr);
    } else {
      step.kind = plan_.has_residual ? StreamStep::kAdd : StreamStep::kConvert;
      step.a = {result(number), DType::kFloat32, rows, strip.columns, strip.columns, false};
    }
    if (plan_.has_residual) step.b = columns_of(tensors_.residual, 1);
    step.c = columns_of(tensors_.output, rows);
    return step;
  }

  const LinearPlan& plan_;
  const LinearLayout& layout_;
  const LinearSchedule& schedule_;
  const LinearTensors& tensors_;
  std::byte* const workspace_;
  const kernels::Beside beside_;
  const DType operands_;
};

// Finds out whether operands become float32, makes the steps, and asks what scratch memory these
// need.
Status PlanSteps(const LinearPlan& plan, LinearSchedule* schedule) {
  std::byte nowhere{};  // whatever the addresses are
  LinearTensors tensors;
  tensors.x = tensors.weight = tensors.residual = tensors.output = tensors.gathered = &nowhere;
  tensors.scale = tensors.bias = tensors.token_scale = &nowhere;
  kernels::StreamCompute& compute = *plan.stream_compute;
  int64_t bytes = 0;
  const bool has_products =
      plan.layout.total_rows > 0 && !schedule->strips.empty() && plan.layout.k > 0;
  const bool widens = plan.dtype != DType::kFloat32 && !MultipliesInt8(plan);
  if (has_products && schedule->has_tiles && widens) {
    const LinearStep all = {LinearStep::kMultiply, 0, {RowPiece::kInX, 0, plan.layout.total_rows}};
    const StepMatrices matrices(plan, *schedule, tensors, &nowhere, {});
    const Status direct = compute.ScratchBytes(matrices.Product(all), &bytes);
    schedule->converts = direct.code() == ERROR_UNSUPPORTED;
    if (!schedule->converts) COLLOPS_RETURN_IF_ERROR(direct);
  }
  MakeSteps(plan, schedule);
  const StepMatrices matrices(plan, *schedule, tensors, &nowhere, {});
  if (matrices.has_leaves() && schedule->sums && !schedule->strips.empty()) {
    COLLOPS_RETURN_IF_ERROR(compute.ScratchBytes(matrices.TreeSum(0, 1, nullptr), &bytes));
  }
  for (const LinearStep& step : schedule->steps) {
    if (schedule->IsLikeAnother(step)) continue;
    for (const StreamStep& each : matrices.Of(step)) {
      COLLOPS_RETURN_IF_ERROR(compute.ScratchBytes(each, &bytes));
      schedule->scratch_bytes = std::max(schedule->scratch_bytes, bytes);
    }
  }
  return Ok();
}

// Scratch memory of the reduction of the widest strip, which is the first.
int64_t SumScratchBytes(const LinearPlan& plan, const LinearSchedule& schedule) {
  if (!schedule.sums || schedule.strips.empty()) return 0;
  const auto ranks = static_cast<int>(plan.layout.scatter.ranks.size());
  const int64_t columns = schedule.strips.front().columns;
  const DType dtype = DType::kFloat32;
  if (plan.layout.leaves.count > 0) return 0;  // nothing is reduced by a communicator
  if (schedule.all_reduces) {
    return AllReduceScratch(*plan.communicator, dtype, ReduceOp::kSum,
                            plan.layout.total_rows * columns, ranks);
  }
  return plan.communicator->ScratchBytes(dtype, ReduceOp::kSum, OwnRows(plan) * columns, ranks);
}

void PlaceMemory(LinearPlan* plan, LinearSchedule* schedule) {
  const LinearLayout& layout = plan->layout;
  const int64_t float_bytes = sizeof(float);
  const bool has_leaves = layout.leaves.count > 0;
  Places places(plan->stream_compute->alignment());
  const bool gathers_here = Gathers(*plan) && !plan->returns_gathered;
  schedule->gathered = places.Take(gathers_here ? layout.total_rows * RowBytes(*plan) : 0);
  if (layout.quant.has_token_scale && Gathers(*plan)) {
    schedule->token_scales = places.Take(layout.total_rows * float_bytes);
  }
  if (WidensWeight(*plan)) {
    schedule->wide_weight = places.Take(layout.n * layout.k * SizeOf(plan->dtype));
  }
  if (schedule->converts) {
    schedule->float_rows = places.Take(layout.total_rows * layout.k * float_bytes);
    schedule->float_weight = places.Take(layout.n * layout.k * float_bytes);
  }
  const size_t slots =
      std::min(static_cast<size_t>(schedule->num_slots()), schedule->strips.size());
  for (size_t slot = 0; slot < slots && schedule->has_tiles; ++slot) {
    const int64_t columns = schedule->strips[slot].columns;  // no later strip is wider
    const int64_t roots = OwnRoots(*plan);
    schedule->tiles[slot] = places.Take(layout.total_rows * columns * roots * float_bytes);
    int64_t rows = schedule->sums && !schedule->all_reduces ? OwnRows(*plan) : 0;
    if (has_leaves && schedule->sums) {
      rows = SharesOfSums(*plan, schedule->all_reduces)
                 .counts[static_cast<size_t>(layout.scatter.index)] *
             static_cast<int64_t>(plan->tree.size());
    }
    schedule->slots[slot] = places.Take(rows * columns * float_bytes);
  }
  schedule->sum_scratch = places.Take(SumScratchBytes(*plan, *schedule));
  schedule->scratch = places.Take(schedule->scratch_bytes);
  plan->memory.bytes = std::max(plan->memory.bytes, places.bytes());
}

Status PlanSchedule(LinearPlan* plan, bool in_turn, std::shared_ptr<const LinearSchedule>* made) {
  const std::shared_ptr<LinearSchedule> schedule = CutForDevice(*plan, in_turn);
  COLLOPS_RETURN_IF_ERROR(PlanSteps(*plan, schedule.get()));
  PlaceMemory(plan, schedule.get());
  *made = schedule;
  return Ok();
}

Status PlanStreams(LinearPlan* plan) {
  COLLOPS_CHECK_ARG(plan->divisor == 1.0F, ERROR_UNSUPPORTED, plan->called,
                    ": averages are not computed on a device: use the sum, and divide the "
                    "output by the number of ranks that are summed");
  plan->memory.bytes = 0;
  return plan->stream_compute->OnDevice([plan]() -> Status {
    COLLOPS_RETURN_IF_ERROR(PlanSchedule(plan, false, &plan->schedule));
    plan->in_turn = plan->schedule;
    return plan->schedule->overlaps ? PlanSchedule(plan, true, &plan->in_turn) : Ok();
  });
}

// Collectives on a stream beside the caller's, and products on the caller's: this rank's own rows
// are multiplied by the first strip of the weight's columns while chunks of the others' are
// gathered, and these as they arrive; the products of a strip are summed over the ranks while the
// next strip is multiplied. Where nothing would run at the same time, all is on the caller's
// stream. Lives during one call, which returns before its work is done.
class StreamLinear {
 public:
  StreamLinear(const LinearRun& run, const LinearSchedule& schedule, const GridParts& parts,
               bool alone)
      : run_(run),
        plan_(run.plan),
        layout_(run.plan.layout),
        schedule_(schedule),
        compute_(*run.plan.stream_compute),
        parts_(parts),
        matrices_(run.plan, schedule, run.tensors, run.workspace,
                  BesideProducts(*run.communicator, schedule.overlaps, alone)),
        marks_(compute_.NewMarks()),
        products_(run.stream),
        collectives_(run.stream),
        gathered_(schedule.gathers.size()),
        summed_(schedule.strips.size()),
        gather_terms_(TermsOf(layout_.gather, "gatherRows")),
        scatter_terms_(TermsOf(layout_.scatter, "scatterRows")) {}

  // Does every product of the call once, with whatever is in memory: later calls of these sizes
  // then load no code.
  Status Prepare() {
    if (layout_.k == 0) return Ok();
    for (const LinearStep& step : schedule_.steps) {
      if (step.kind != LinearStep::kMultiply || schedule_.IsLikeAnother(step)) continue;
      COLLOPS_RETURN_IF_ERROR(compute_.Prepare(matrices_.Product(step),
                                               run_.workspace + schedule_.scratch,
                                               schedule_.scratch_bytes, products_));
    }
    return Ok();
  }

  Status Run() {
    if (schedule_.overlaps) COLLOPS_RETURN_IF_ERROR(compute_.SideStream(&collectives_));
    const Status status = Enqueue();
    // Also after an error: what is on the other stream uses the caller's tensors.
    const Status joined = Join();
    const Status kept = run_.communicator->KeepOnStream(run_.agreement.called(), products_, marks_);
    COLLOPS_RETURN_IF_ERROR(status);
    COLLOPS_RETURN_IF_ERROR(joined);
    return kept;
  }

 private:
  // What the ranks of a group compare, where calls on streams are compared: all that they move
  // follows from it.
  Agreement TermsOf(const RowGroup& group, const char* list) const {
    const auto size = static_cast<int>(group.ranks.size());
    if (size == plan_.rank_size) return run_.agreement;
    Agreement terms = run_.agreement.WithoutTerms();
    terms.EqualText("dtype", Name(plan_.dtype));
    for (const char* const term :
         {"type", "agDim", "rsDim", "innerDimIsAg", "sumLeaves", "n", "the sum of the rows"}) {
      terms.Equal(term, run_.agreement.Value(term));
    }
    terms.EqualList(list, group.rows.data(), size);
    if (!matrices_.has_leaves() || &group == &layout_.gather) {
      terms.Equal("k", layout_.k);
    } else {
      terms.EqualList("the ranks' first leaves", layout_.leaves.begins.data(), size);
    }
    return terms;
  }

  // As those of marks_; on one stream nothing has to wait.
  Status Order(void* first, void* then) const {
    return first == then ? Ok() : marks_->Order(first, then);
  }
  Status PutMark(int* mark) const {
    return collectives_ == products_ ? Ok() : marks_->Put(collectives_, mark);
  }
  Status WaitForMark(int mark) const {
    return collectives_ == products_ ? Ok() : marks_->Wait(products_, mark);
  }
  // From here on all is on the caller's stream, behind what is on the other one.
  Status Join() {
    COLLOPS_RETURN_IF_ERROR(Order(collectives_, products_));
    collectives_ = products_;
    return Ok();
  }

  Status Enqueue() {
    COLLOPS_RETURN_IF_ERROR(Order(products_, collectives_));
    if (!Gathers(plan_) && run_.tensors.gathered != nullptr) {
      COLLOPS_RETURN_IF_ERROR(compute_.Copy(run_.tensors.gathered, run_.tensors.x,
                                            layout_.total_rows * RowBytes(plan_), products_));
    }
    if (layout_.quant.has_token_scale && Gathers(plan_)) {
      COLLOPS_RETURN_IF_ERROR(GatherTokenScales());
    }
    for (const LinearStep& step : schedule_.steps) COLLOPS_RETURN_IF_ERROR(Put(step));
    return layout_.total_rows == 0 || layout_.n == 0 ? MeetWithNothing() : Ok();
  }

  Status Put(const LinearStep& step) {
    const auto strip = static_cast<size_t>(step.strip);
    switch (step.kind) {
      case LinearStep::kGather:
        return Gather(step.piece.chunk);
      case LinearStep::kConvertWeight:
        return Compute(step);
      case LinearStep::kMultiply:
        return Multiply(step);
      case LinearStep::kSum:
        // Nothing is multiplied beside the last sum, which may so have all of the device.
        if (strip + 1 == schedule_.strips.size()) COLLOPS_RETURN_IF_ERROR(Join());
        COLLOPS_RETURN_IF_ERROR(Order(products_, collectives_));
        COLLOPS_RETURN_IF_ERROR(InGroup(plan_, layout_.scatter.ranks, Sum(step.strip)));
        return PutMark(&summed_[strip]);
      case LinearStep::kStore:
        if (schedule_.sums) COLLOPS_RETURN_IF_ERROR(WaitForMark(summed_[strip]));
        return Compute(step);
    }
    return Ok();
  }

  // Without products there is nothing to sum, but the ranks compare their calls all the same.
  Status MeetWithNothing() {
    if (!schedule_.sums) return Ok();
    const auto nothing = std::make_shared<const std::vector<int64_t>>(layout_.scatter.ranks.size());
    AllGatherVCall call;
    call.agreement = &scatter_terms_;
    call.dtype = plan_.dtype;
    call.recv_counts = call.rdispls = nothing->data();
    call.stream = collectives_;
    call.keep = nothing;
    return InGroup(plan_, layout_.scatter.ranks, parts_.scatter->AllGatherV(call));
  }

  // Before the rows, whose marks are behind them.
  Status GatherTokenScales() {
    AllGatherVCall call;
    call.agreement = &gather_terms_;
    call.dtype = DType::kFloat32;
    call.x = run_.tensors.token_scale;
    call.output = matrices_.token_scales();
    call.recv_counts = layout_.gather.rows.data();
    call.rdispls = layout_.gather.begin.data();
    call.stream = collectives_;
    call.keep = run_.keep;
    return InGroup(plan_, layout_.gather.ranks, parts_.gather->AllGatherV(call));
  }

  Status Gather(int number) {
    const GatherChunk& chunk = schedule_.gathers[static_cast<size_t>(number)];
    AllGatherVCall call;
    call.agreement = &gather_terms_;
    call.dtype = plan_.dtype;
    // A rank whose rows have all gone has none there.
    const bool sends = chunk.counts[static_cast<size_t>(layout_.gather.index)] > 0;
    call.x =
        static_cast<const std::byte*>(run_.tensors.x) + (sends ? chunk.row * RowBytes(plan_) : 0);
    call.output = matrices_.gathered();
    call.recv_counts = chunk.counts.data();
    call.rdispls = chunk.displs.data();
    call.stream = collectives_;
    call.keep = run_.keep;
    COLLOPS_RETURN_IF_ERROR(InGroup(plan_, layout_.gather.ranks, parts_.gather->AllGatherV(call)));
    return PutMark(&gathered_[static_cast<size_t>(number)]);
  }

  Status Compute(const LinearStep& step) {
    for (const StreamStep& each : matrices_.Of(step)) {
      COLLOPS_RETURN_IF_ERROR(compute_.Run(each, run_.workspace + schedule_.scratch,
                                           schedule_.scratch_bytes, products_));
    }
    return Ok();
  }

  Status Multiply(const LinearStep& step) {
    if (step.piece.chunk > last_there_) {
      last_there_ = step.piece.chunk;
      COLLOPS_RETURN_IF_ERROR(WaitForMark(gathered_[static_cast<size_t>(last_there_)]));
    }
    if (layout_.k > 0) return Compute(step);
    const DeviceMatrix products = matrices_.Products(step);
    const int64_t bytes = products.rows * products.columns * SizeOf(products.dtype);
    return compute_.SetZero(const_cast<void*>(products.data), bytes, products_);
  }

  Status Sum(int64_t strip) {
    if (matrices_.has_leaves()) return SumLeaves(strip);
    return schedule_.all_reduces ? AllReduce(strip) : Scatter(strip);
  }

  // The roots of all ranks go to those who add them up, which kStore does, or, where all want the
  // sums, this.
  Status SumLeaves(int64_t number) {
    const int64_t columns = schedule_.strips[static_cast<size_t>(number)].columns;
    const auto index = static_cast<size_t>(layout_.scatter.index);
    EvenSplit shares = SharesOfSums(plan_, schedule_.all_reduces);
    std::vector<int64_t> send_counts, sdispls, recv_counts, rdispls;
    int64_t received = 0;
    for (size_t m = 0; m < layout_.scatter.ranks.size(); ++m) {
      send_counts.push_back(shares.counts[m] * columns * OwnRoots(plan_));
      sdispls.push_back(shares.displs[m] * columns * OwnRoots(plan_));
      recv_counts.push_back(shares.counts[index] * columns * RootsOf(plan_, m));
      rdispls.push_back(received);
      received += recv_counts.back();
    }
    ExchangeVCall exchange;
    exchange.agreement = &scatter_terms_;
    exchange.dtype = DType::kFloat32;
    exchange.x = matrices_.tile(number);
    exchange.send_counts = send_counts.data();
    exchange.sdispls = sdispls.data();
    exchange.output = matrices_.slot(number);
    exchange.recv_counts = recv_counts.data();
    exchange.rdispls = rdispls.data();
    exchange.stream = collectives_;
    COLLOPS_RETURN_IF_ERROR(parts_.scatter->ExchangeV(exchange));
    if (!schedule_.all_reduces) return Ok();
    // Nobody reads this rank's roots any more.
    for (size_t m = 0; m < shares.counts.size(); ++m) {
      shares.counts[m] *= columns;
      shares.displs[m] *= columns;
    }
    std::byte* const sums = matrices_.tile(number);
    std::byte* const own = sums + shares.displs[index] * int64_t{sizeof(float)};
    if (shares.counts[index] > 0) {
      const int64_t rows = shares.counts[index] / columns;
      COLLOPS_RETURN_IF_ERROR(
          compute_.Run(matrices_.TreeSum(number, rows, own), nullptr, 0, collectives_));
    }
    AllGatherVCall gather;
    gather.agreement = &scatter_terms_;
    gather.dtype = DType::kFloat32;
    gather.x = own;
    gather.output = sums;
    gather.recv_counts = shares.counts.data();
    gather.rdispls = shares.displs.data();
    gather.stream = collectives_;
    return parts_.scatter->AllGatherV(gather);
  }

  Status AllReduce(int64_t strip) {
    AllReduceCall call;
    call.agreement = &scatter_terms_;
    call.dtype = DType::kFloat32;
    call.x = call.output = matrices_.tile(strip);
    call.count = layout_.total_rows * schedule_.strips[static_cast<size_t>(strip)].columns;
    call.scratch = run_.workspace + schedule_.sum_scratch;
    call.stream = collectives_;
    call.keep = run_.keep;
    return parts_.scatter->AllReduce(call);
  }

  Status Scatter(int64_t number) {
    const ColumnStrip& strip = schedule_.strips[static_cast<size_t>(number)];
    ReduceScatterVCall call;
    call.agreement = &scatter_terms_;
    call.dtype = DType::kFloat32;
    call.x = matrices_.tile(number);
    call.output = matrices_.result(number);
    call.output_count = OwnRows(plan_) * strip.columns;
    call.send_counts = strip.counts.data();
    call.sdispls = strip.displs.data();
    call.scratch = run_.workspace + schedule_.sum_scratch;
    call.stream = collectives_;
    call.keep = run_.keep;
    return parts_.scatter->ReduceScatterV(call);
  }

  const LinearRun& run_;
  const LinearPlan& plan_;
  const LinearLayout& layout_;
  const LinearSchedule& schedule_;
  kernels::StreamCompute& compute_;
  const GridParts& parts_;
  const StepMatrices matrices_;
  const std::shared_ptr<kernels::StreamMarks> marks_;
  void* const products_;
  void* collectives_;
  std::vector<int> gathered_;        // marks behind each chunk
  std::vector<int> summed_;          // and behind each strip's sum
  int last_there_ = RowPiece::kInX;  // the last chunk that was waited for
  const Agreement gather_terms_;
  const Agreement scatter_terms_;
};

Status RunStreams(const LinearRun& run) {
  COLLOPS_CHECK_ARG(run.stream != nullptr, ERROR_INVALID_STREAM, run.plan.called,
                    ": there is no stream: pass tensors of the device, or stream=");
  // Those who disagree learn it before anything moves, if calls are compared.
  COLLOPS_RETURN_IF_ERROR(run.communicator->Agree(run.agreement));
  GridParts parts;
  const bool alone = !Gathers(run.plan) && !SumsPartials(run.plan);
  const LinearSchedule& schedule = ChooseSchedule(run.plan, run.communicator->device_share());
  Status status = alone ? Ok() : run.plan.stream_compute->CheckStream(run.stream);
  if (status.ok()) status = FindParts(run, &parts);
  if (status.ok() && !alone) {
    // A refusal ends nothing: every rank hears of it before anything is on a stream.
    COLLOPS_RETURN_IF_ERROR(run.communicator->PrepareTogether(
        run.agreement, ProductsKey(run, schedule), run.stream,
        [&] { return StreamLinear(run, schedule, parts, alone).Prepare(); }));
  }
  if (status.ok()) {
    status = run.plan.stream_compute->OnDevice(
        [&] { return StreamLinear(run, schedule, parts, alone).Run(); });
  }
  return status.ok() ? status : FailInParts(run, status);
}

}  // namespace

kernels::Beside BesideProducts(const Communicator& communicator, bool overlaps, bool alone) {
  const DeviceShare share = communicator.device_share();
  kernels::Beside beside;
  beside.waits =
      overlaps || share.ranks > 1 || (alone && communicator.spec().comm_mode == COMM_MULTI_THREAD);
  if (overlaps && share.blocks_beside > 0) {
    beside.multiprocessors = std::max(share.multiprocessors - share.blocks_beside, 1);
  }
  return beside;
}

Status CheckProducts(const Communicator& communicator, kernels::StreamCompute* compute) {
  if (communicator.device().kind == DeviceKind::kCpu) return Ok();
  COLLOPS_CHECK_ARG(compute != nullptr, ERROR_UNSUPPORTED, "backend ", communicator.spec().backend,
                    ": LinearParallel does not run on it, it has no products");
  return compute->Available();
}

const Engine kStreams = {"streams", &AcceptsStreams, &PlanStreams, &RunStreams};

}  // namespace collops

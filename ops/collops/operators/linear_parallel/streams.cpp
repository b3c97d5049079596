#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collops/operators/linear_parallel/engine.h"

namespace collops {
namespace {

using kernels::DeviceMatrix;
using kernels::StreamStep;

Status AcceptsStreams(const EnginePlace& place) {
  COLLOPS_CHECK_ARG(place.on_device, ERROR_UNSUPPORTED, "the tensors of backend ", place.backend,
                    " are not on a device");
  return Ok();
}

// A product of one rank alone may run before the ranks have met, and later has the same algorithm.
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

// Equal for calls in turn whose products have the same sizes and types.
uint64_t ProductsKey(const LinearRun& run, const StreamSchedule& schedule) {
  const uint64_t options =
      (run.plan.layout.trans_weight ? 1u : 0u) + (schedule.has_tiles ? 2u : 0u);
  return run.agreement.digest() * 4 + options;
}

// Collectives on a stream beside the caller's, and products on the caller's: this rank's own rows
// are multiplied by the first strip of the weight's columns while chunks of the others' are
// gathered, and these as they arrive; the products of a strip are summed over the ranks while the
// next strip is multiplied. Where nothing would run at the same time, all is on the caller's
// stream. Lives during one call, which returns before its work is done.
class StreamLinear {
 public:
  StreamLinear(const LinearRun& run, const StreamSchedule& schedule, const GridParts& parts,
               bool alone)
      : run_(run),
        plan_(run.plan),
        layout_(run.plan.layout),
        schedule_(schedule),
        compute_(*run.plan.stream_compute),
        parts_(parts),
        beside_(BesideProducts(*run.communicator, schedule.overlaps, alone)),
        marks_(compute_.NewMarks()),
        products_(run.stream),
        collectives_(run.stream),
        gather_terms_(TermsOf(layout_.gather, "gatherRows")),
        scatter_terms_(TermsOf(layout_.scatter, "scatterRows")) {}

  // Does every product of the call once, with whatever is in memory: later calls of these sizes
  // then load no code.
  Status Prepare() {
    if (layout_.total_rows == 0 || layout_.n == 0) return Ok();
    prepares_ = true;
    for (const RowPiece& piece : schedule_.pieces) {
      COLLOPS_RETURN_IF_ERROR(MultiplyRows(0, RowsOf(piece), piece.begin, piece.rows));
    }
    const auto strips = static_cast<int64_t>(schedule_.strips.size());
    for (int64_t strip = 1; strip < strips; ++strip) {
      // Between these two all are as wide as the first of them.
      if (strip > 1 && strip + 1 < strips) continue;
      COLLOPS_RETURN_IF_ERROR(MultiplyRows(strip, rows(), 0, layout_.total_rows));
    }
    prepares_ = false;
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
  struct Running {
    int64_t strip;
    int summed;  // a mark behind the sum
  };

  // What the ranks of a group compare, where calls on streams are compared: all that they move
  // follows from it.
  Agreement TermsOf(const RowGroup& group, const char* list) const {
    const auto size = static_cast<int>(group.ranks.size());
    if (size == plan_.rank_size) return run_.agreement;
    Agreement terms = run_.agreement.WithoutTerms();
    terms.EqualText("dtype", Name(plan_.dtype));
    for (const char* const term :
         {"type", "agDim", "rsDim", "innerDimIsAg", "k", "n", "the sum of the rows"}) {
      terms.Equal(term, run_.agreement.Value(term));
    }
    terms.EqualList(list, group.rows.data(), size);
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
    COLLOPS_RETURN_IF_ERROR(Gather());
    if (layout_.total_rows == 0 || layout_.n == 0) return MeetWithNothing();
    COLLOPS_RETURN_IF_ERROR(ConvertWeight());
    const auto strips = static_cast<int64_t>(schedule_.strips.size());
    std::vector<Running> running;
    for (int64_t strip = 0; strip < strips; ++strip) {
      COLLOPS_RETURN_IF_ERROR(Multiply(strip));
      if (!schedule_.sums) {
        COLLOPS_RETURN_IF_ERROR(Store(strip));
        continue;
      }
      // Nothing is multiplied beside the last sum, which may so have all of the device.
      if (strip + 1 == strips) COLLOPS_RETURN_IF_ERROR(Join());
      int summed = 0;
      COLLOPS_RETURN_IF_ERROR(Sum(strip, &summed));
      running.push_back({strip, summed});
      // The strip before this one has been summed meanwhile, or nearly so.
      if (static_cast<int>(running.size()) == schedule_.num_slots()) {
        COLLOPS_RETURN_IF_ERROR(Finish(&running));
      }
    }
    while (!running.empty()) COLLOPS_RETURN_IF_ERROR(Finish(&running));
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

  // Waits, on the stream of products, for the oldest sum, and stores it.
  Status Finish(std::vector<Running>* running) {
    const Running oldest = running->front();
    running->erase(running->begin());
    COLLOPS_RETURN_IF_ERROR(WaitForMark(oldest.summed));
    return Store(oldest.strip);
  }

  std::byte* gathered() const {
    if (run_.tensors.gathered != nullptr) return static_cast<std::byte*>(run_.tensors.gathered);
    return run_.workspace + schedule_.gathered;
  }

  // All rows, where they are multiplied from.
  const std::byte* rows() const {
    return Gathers(plan_) ? gathered() : static_cast<const std::byte*>(run_.tensors.x);
  }

  Status Gather() {
    if (!Gathers(plan_)) {
      if (run_.tensors.gathered == nullptr) return Ok();
      return compute_.Copy(run_.tensors.gathered, run_.tensors.x,
                           layout_.total_rows * RowBytes(plan_), products_);
    }
    for (const GatherChunk& chunk : schedule_.gathers) {
      AllGatherVCall call;
      call.agreement = &gather_terms_;
      call.dtype = plan_.dtype;
      // A rank whose rows have all gone has none there.
      const bool sends = chunk.counts[static_cast<size_t>(layout_.gather.index)] > 0;
      call.x =
          static_cast<const std::byte*>(run_.tensors.x) + (sends ? chunk.row * RowBytes(plan_) : 0);
      call.output = gathered();
      call.recv_counts = chunk.counts.data();
      call.rdispls = chunk.displs.data();
      call.stream = collectives_;
      call.keep = run_.keep;
      COLLOPS_RETURN_IF_ERROR(
          InGroup(plan_, layout_.gather.ranks, parts_.gather->AllGatherV(call)));
      int mark = 0;
      COLLOPS_RETURN_IF_ERROR(PutMark(&mark));
      arrived_.push_back(mark);
    }
    return Ok();
  }

  Status Do(const StreamStep& step) {
    return compute_.Run(step, run_.workspace + schedule_.scratch, schedule_.scratch_bytes,
                        products_);
  }

  Status ConvertWeight() {
    if (!schedule_.converts) return Ok();
    const bool trans = layout_.trans_weight;
    const int64_t weight_rows = trans ? layout_.n : layout_.k;
    const int64_t columns = trans ? layout_.k : layout_.n;
    return Convert(run_.tensors.weight.data, run_.workspace + schedule_.float_weight, weight_rows,
                   columns);
  }

  Status Convert(const void* from, void* to, int64_t num_rows, int64_t columns) {
    StreamStep step;
    step.kind = StreamStep::kConvert;
    step.a = {from, plan_.dtype, num_rows, columns, columns, false};
    step.c = {to, DType::kFloat32, num_rows, columns, columns, false};
    return Do(step);
  }

  // The first strip takes the rows as they arrive; then all of them are there.
  Status Multiply(int64_t strip) {
    if (strip > 0) return MultiplyRows(strip, rows(), 0, layout_.total_rows);
    int arrived = RowPiece::kInX;
    for (const RowPiece& piece : schedule_.pieces) {
      if (piece.chunk > arrived) {
        arrived = piece.chunk;
        COLLOPS_RETURN_IF_ERROR(WaitForMark(arrived_[static_cast<size_t>(arrived)]));
      }
      COLLOPS_RETURN_IF_ERROR(ConvertRows(RowsOf(piece), piece.begin, piece.rows));
      COLLOPS_RETURN_IF_ERROR(MultiplyRows(strip, RowsOf(piece), piece.begin, piece.rows));
    }
    return Ok();
  }

  const std::byte* RowsOf(const RowPiece& piece) const {
    return piece.chunk == RowPiece::kInX ? static_cast<const std::byte*>(run_.tensors.x)
                                         : rows() + piece.begin * RowBytes(plan_);
  }

  // `from`: the first of these rows, which are `count` from row `begin` on.
  Status ConvertRows(const std::byte* from, int64_t begin, int64_t count) {
    if (!schedule_.converts || count == 0 || layout_.k == 0) return Ok();
    const int64_t float_bytes = sizeof(float);
    return Convert(from, run_.workspace + schedule_.float_rows + begin * layout_.k * float_bytes,
                   count, layout_.k);
  }

  DeviceMatrix Weight(const ColumnStrip& strip) const {
    const DType dtype = schedule_.converts ? DType::kFloat32 : plan_.dtype;
    const auto* const data = schedule_.converts
                                 ? run_.workspace + schedule_.float_weight
                                 : static_cast<const std::byte*>(run_.tensors.weight.data);
    const bool trans = layout_.trans_weight;
    const int64_t ld = trans ? layout_.k : layout_.n;
    const int64_t first = strip.begin * (trans ? ld : 1);
    return {data + first * SizeOf(dtype), dtype, layout_.k, strip.columns, ld, trans};
  }

  // Where the products of some rows and a strip go.
  DeviceMatrix Products(int64_t strip, int64_t begin, int64_t count) const {
    const int64_t columns = schedule_.strips[static_cast<size_t>(strip)].columns;
    const DType dtype = schedule_.has_tiles ? DType::kFloat32 : plan_.dtype;
    std::byte* const data =
        schedule_.has_tiles ? tile(strip) : static_cast<std::byte*>(run_.tensors.output);
    return {data + begin * columns * SizeOf(dtype), dtype, count, columns, columns, false};
  }

  Status MultiplyRows(int64_t strip, const std::byte* from, int64_t begin, int64_t count) {
    if (count == 0) return Ok();
    StreamStep step;
    step.c = Products(strip, begin, count);
    if (layout_.k == 0) {
      const int64_t bytes = count * step.c.columns * SizeOf(step.c.dtype);
      return compute_.SetZero(const_cast<void*>(step.c.data), bytes, products_);
    }
    const DType dtype = schedule_.converts ? DType::kFloat32 : plan_.dtype;
    const int64_t float_row = layout_.k * int64_t{sizeof(float)};
    const std::byte* const data =
        schedule_.converts ? run_.workspace + schedule_.float_rows + begin * float_row : from;
    step.a = {data, dtype, count, layout_.k, layout_.k, false};
    step.b = Weight(schedule_.strips[static_cast<size_t>(strip)]);
    step.beside = beside_;
    if (!prepares_) return Do(step);
    return compute_.Prepare(step, run_.workspace + schedule_.scratch, schedule_.scratch_bytes,
                            products_);
  }

  std::byte* tile(int64_t strip) const {
    return run_.workspace + schedule_.tiles[strip % schedule_.num_slots()];
  }

  // This rank's rows of a strip, summed, or as they were multiplied.
  const std::byte* result(int64_t strip) const {
    if (!schedule_.sums || schedule_.all_reduces) return tile(strip);
    return run_.workspace + schedule_.slots[strip % schedule_.num_slots()];
  }

  int64_t OwnRows() const {
    return schedule_.sums ? layout_.scatter.rows[static_cast<size_t>(layout_.scatter.index)]
                          : layout_.total_rows;
  }

  Status Sum(int64_t number, int* summed) {
    const ColumnStrip& strip = schedule_.strips[static_cast<size_t>(number)];
    COLLOPS_RETURN_IF_ERROR(Order(products_, collectives_));
    const Status status = schedule_.all_reduces ? AllReduce(number, strip) : Scatter(number, strip);
    COLLOPS_RETURN_IF_ERROR(InGroup(plan_, layout_.scatter.ranks, status));
    return PutMark(summed);
  }

  Status AllReduce(int64_t number, const ColumnStrip& strip) {
    AllReduceCall call;
    call.agreement = &scatter_terms_;
    call.dtype = DType::kFloat32;
    call.x = call.output = tile(number);
    call.count = layout_.total_rows * strip.columns;
    call.scratch = run_.workspace + schedule_.sum_scratch;
    call.stream = collectives_;
    call.keep = run_.keep;
    return parts_.scatter->AllReduce(call);
  }

  Status Scatter(int64_t number, const ColumnStrip& strip) {
    ReduceScatterVCall call;
    call.agreement = &scatter_terms_;
    call.dtype = DType::kFloat32;
    call.x = tile(number);
    call.output = const_cast<std::byte*>(result(number));
    call.output_count = OwnRows() * strip.columns;
    call.send_counts = strip.counts.data();
    call.sdispls = strip.displs.data();
    call.scratch = run_.workspace + schedule_.sum_scratch;
    call.stream = collectives_;
    call.keep = run_.keep;
    return parts_.scatter->ReduceScatterV(call);
  }

  // Rounds a strip's sums, and the residual, into the columns of the output.
  Status Store(int64_t number) {
    const ColumnStrip& strip = schedule_.strips[static_cast<size_t>(number)];
    if (!schedule_.has_tiles || OwnRows() == 0) return Ok();
    const int64_t first = strip.begin * SizeOf(plan_.dtype);
    StreamStep step;
    step.kind = StreamStep::kConvert;
    step.a = {result(number), DType::kFloat32, OwnRows(), strip.columns, strip.columns, false};
    step.c = {static_cast<std::byte*>(run_.tensors.output) + first,
              plan_.dtype,
              OwnRows(),
              strip.columns,
              layout_.n,
              false};
    if (plan_.has_residual) {
      step.kind = StreamStep::kAddRow;
      step.b = {static_cast<const std::byte*>(run_.tensors.residual) + first,
                plan_.dtype,
                1,
                strip.columns,
                layout_.n,
                false};
    }
    return Do(step);
  }

  const LinearRun& run_;
  const LinearPlan& plan_;
  const LinearLayout& layout_;
  const StreamSchedule& schedule_;
  kernels::StreamCompute& compute_;
  const GridParts& parts_;
  const kernels::Beside beside_;
  const std::shared_ptr<kernels::StreamMarks> marks_;
  void* const products_;
  void* collectives_;
  std::vector<int> arrived_;  // a mark behind each chunk of gathered rows
  const Agreement gather_terms_;
  const Agreement scatter_terms_;
  bool prepares_ = false;
};

Status RunStreams(const LinearRun& run) {
  COLLOPS_CHECK_ARG(run.stream != nullptr, ERROR_INVALID_STREAM, run.plan.called,
                    ": there is no stream: pass tensors of the device, or stream=");
  // Those who disagree learn it before anything moves, if calls are compared.
  COLLOPS_RETURN_IF_ERROR(run.communicator->Agree(run.agreement));
  GridParts parts;
  const LinearLayout& layout = run.plan.layout;
  const bool alone = layout.gather.ranks.size() == 1 && layout.scatter.ranks.size() == 1;
  const StreamSchedule& schedule = ChooseSchedule(run.plan, run.communicator->device_share());
  Status status = alone ? Ok() : run.plan.stream_compute->CheckStream(run.stream);
  if (status.ok()) status = FindParts(run, &parts);
  if (status.ok() && !alone) {
    // A refusal ends nothing: every rank hears of it before anything is on a stream.
    COLLOPS_RETURN_IF_ERROR(run.communicator->PrepareTogether(
        run.agreement, ProductsKey(run, schedule), run.stream,
        [&] { return StreamLinear(run, schedule, parts, alone).Prepare(); }));
  }
  if (status.ok()) status = StreamLinear(run, schedule, parts, alone).Run();
  return status.ok() ? status : FailInParts(run, status);
}

}  // namespace

const Engine kStreams = {"streams", &AcceptsStreams, &PlanStreams, &RunStreams};

}  // namespace collops

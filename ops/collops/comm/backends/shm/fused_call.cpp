#include "collops/comm/backends/shm/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collops/kernels/copy.h"

namespace collops::shm {
namespace {

// The low bits of a signal count; the others are the call's step, so no signal is reset.
constexpr int kCountBits = 24;

// The bits of a step's number that a signal holds.
uint64_t StepBits(uint64_t step) {
  return (step << kCountBits) >> kCountBits;
}

// Rounds up, so that calls whose size grows row by row do not each need new memory.
int64_t Roomy(int64_t bytes) {
  int64_t unit = 4096;
  while (unit * 16 <= bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

constexpr int64_t kSlots = kStageBytes / MatrixCut::kPartBytes;
constexpr double kLookS = 0.1;

// Whether both lists have the same length and sum, so that the tiles lie at the same places.
bool SameTotal(const std::vector<int64_t>& rows, const std::vector<int64_t>& own) {
  int64_t left = std::accumulate(own.begin(), own.end(), int64_t{0});
  for (const int64_t n : rows) {
    if (n < 0 || n > left) return false;
    left -= n;
  }
  return left == 0 && rows.size() == own.size();
}

}  // namespace

Status ShmFusedCall::Reserve(int64_t tile_bytes) {
  if (tile_bytes == 0 || (memory_ != nullptr && memory_->bytes() >= tile_bytes)) return Ok();
  std::shared_ptr<Window> larger;
  COLLOPS_RETURN_IF_ERROR(windows_->Allocate(Roomy(tile_bytes), &larger));
  if (announced_) old_memory_ = std::move(memory_);
  announced_ = false;
  memory_ = std::move(larger);
  return Ok();
}

Status ShmFusedCall::Prepare(const FusedCallSpec& spec) {
  spec_ = &spec;
  window_id_ = 0;
  if (spec.tile_bytes == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(Reserve(spec.tile_bytes));
  announced_ = true;
  WindowSpot spot;
  if (windows_->Find(memory_->data(), spec.tile_bytes, &spot)) window_id_ = spot.id;
  return Ok();
}

std::byte* ShmFusedCall::window() const {
  return spec_->tile_bytes == 0 ? nullptr : static_cast<std::byte*>(memory_->data());
}

Status ShmFusedCall::PeerWindow(int rank, const std::byte** data) const {
  *data = nullptr;
  return spec_->tile_bytes == 0 ? Ok() : exchange_->PeerTiles(rank, spec_->tile_bytes, data);
}

void ShmFusedCall::Signal(int index, int64_t count) {
  FusedSignal& signal = exchange_->layout().fused_signal(endpoint_->rank(), index);
  const uint64_t step = exchange_->step().number();
  signal.value.store((step << kCountBits) + static_cast<uint64_t>(count),
                     std::memory_order_release);
  endpoint_->RingAll();
}

int64_t ShmFusedCall::Signalled(int rank, int index) const {
  const FusedSignal& signal = exchange_->layout().fused_signal(rank, index);
  const uint64_t value = signal.value.load(std::memory_order_acquire);
  if (value >> kCountBits != StepBits(exchange_->step().number())) return 0;
  return static_cast<int64_t>(value & ((uint64_t{1} << kCountBits) - 1));
}

Status ShmFusedCall::Begin() {
  const auto size = static_cast<size_t>(endpoint_->size());
  rows_known_.assign(size, false);
  reader_rows_.resize(size);
  PrepareSources();
  SharedInput input;
  if (spec_->readers->size() > 1) {
    for (const ReaderInput& own : inputs_) {
      if (own.rank != endpoint_->rank()) continue;
      input = {static_cast<const std::byte*>(spec_->x), own.rows * spec_->row_bytes};
      own_cut_ = own.cut;
    }
  }
  COLLOPS_RETURN_IF_ERROR(exchange_->Start(*spec_->agreement, input, window_id_));
  exchange_->step().waiter().RestartDeadline();  // the call computes now, and after each wait
  num_staged_ = 0;
  num_to_stage_ = exchange_->own_place() == InputPlace::kStage ? own_cut_.num_parts() : 0;
  rows_known_[static_cast<size_t>(endpoint_->rank())] = true;
  return Ok();
}

void ShmFusedCall::PrepareSources() {
  inputs_.clear();
  for (size_t i = 0; i < spec_->readers->size(); ++i) {
    ReaderInput input;
    input.rank = (*spec_->readers)[i];
    input.rows = (*spec_->reader_rows)[i];
    input.cut = MatrixCut(input.rows, spec_->row_bytes, spec_->row_unit);
    if (input.rank == endpoint_->rank()) {
      input.located = true;
      input.data = static_cast<const std::byte*>(spec_->x);
    }
    // An input that is read in place is one part, or none if it is empty.
    input.num_parts = std::min<int64_t>(input.cut.num_parts(), 1);
    inputs_.push_back(input);
  }
}

Status ShmFusedCall::Progress() {
  COLLOPS_RETURN_IF_ERROR(endpoint_->GroupFailure(exchange_->step().number()));
  if (next_look_.Passed()) {
    next_look_ = Deadline::After(kLookS);
    // The checks of a wait, made now and then also while this rank computes.
    COLLOPS_RETURN_IF_ERROR(exchange_->step().LookAround());
  }
  COLLOPS_RETURN_IF_ERROR(exchange_->ReadArrived());
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (!rows_known_[static_cast<size_t>(r)] && HasAnnounced(r))
      COLLOPS_RETURN_IF_ERROR(TakeRows(r));
  }
  for (ReaderInput& input : inputs_) {
    if (!input.located && HasAnnounced(input.rank)) COLLOPS_RETURN_IF_ERROR(Locate(&input));
  }
  while (CanStage()) StagePart();
  return Ok();
}

// A peer's numbers are not trusted. AwaitAll() compares them with the agreement.
Status ShmFusedCall::TakeRows(int rank) {
  rows_known_[static_cast<size_t>(rank)] = true;
  std::vector<int64_t>& rows = reader_rows_[static_cast<size_t>(rank)];
  rows = Agreement::EncodedList(endpoint_->board().agreement(rank, exchange_->step().number()), 0,
                                endpoint_->size());
  if (SameTotal(rows, *spec_->reader_rows)) return Ok();
  // Waits for all ranks, and reports what they disagree about.
  COLLOPS_RETURN_IF_ERROR(exchange_->AwaitAll());
  return Error(ERROR_RANK_MISMATCH, spec_->agreement->called(), ": ", endpoint_->Who(rank),
               " announced other rows than it agreed to");
}

Status ShmFusedCall::Locate(ReaderInput* input) {
  COLLOPS_RETURN_IF_ERROR(
      exchange_->PeerInput(input->rank, input->rows * spec_->row_bytes, &input->data));
  input->located = true;
  if (input->data == nullptr) input->num_parts = input->cut.num_parts();
  return Ok();
}

bool ShmFusedCall::NextPart(size_t index, MatrixPart* part) {
  const ReaderInput& input = inputs_[index];
  if (!input.located || input.num_read == input.num_parts) return false;
  if (input.data != nullptr) {
    *part = {input.data, spec_->row_bytes, 0, input.rows, 0, spec_->row_bytes};
    return true;
  }
  if (Signalled(input.rank, ProducedIndex()) <= input.num_read) return false;
  *part = input.cut.Part(input.num_read);
  part->ld_bytes = part->end - part->begin;
  part->data =
      exchange_->layout().stage(input.rank) + input.num_read % kSlots * MatrixCut::kPartBytes;
  return true;
}

void ShmFusedCall::ReleasePart(size_t index) {
  ReaderInput& input = inputs_[index];
  ++input.num_read;
  if (input.rank != endpoint_->rank()) Signal(ConsumedIndex(input.rank), input.num_read);
}

bool ShmFusedCall::AllRead(size_t index) const {
  const ReaderInput& input = inputs_[index];
  return input.located && input.num_read == input.num_parts;
}

template <typename Holds>
bool ShmFusedCall::AllReaders(Holds&& holds) const {
  return std::all_of(spec_->readers->begin(), spec_->readers->end(), [&](int reader) {
    return reader == endpoint_->rank() ||
           holds(Signalled(reader, ConsumedIndex(endpoint_->rank())));
  });
}

bool ShmFusedCall::CanStage() const {
  if (num_staged_ == num_to_stage_ || !WindowIsFree()) return false;
  return AllReaders([&](int64_t num_read) { return num_read + kSlots > num_staged_; });
}

void ShmFusedCall::StagePart() {
  const MatrixPart part = own_cut_.Part(num_staged_);
  const int64_t width = part.end - part.begin;
  std::byte* slot =
      exchange_->layout().stage(endpoint_->rank()) + num_staged_ % kSlots * MatrixCut::kPartBytes;
  const std::byte* input =
      static_cast<const std::byte*>(spec_->x) + part.row * spec_->row_bytes + part.begin;
  if (width == spec_->row_bytes) {
    exchange_->peer_copy().Copy(slot, input, part.rows * width);
  } else {
    for (int64_t row = 0; row < part.rows; ++row) {
      kernels::Copy(slot + row * width, input + row * spec_->row_bytes, width);
    }
  }
  Signal(ProducedIndex(), ++num_staged_);
}

Status ShmFusedCall::Wait(const std::function<bool()>& ready) {
  Status progress;
  exchange_->step().waiter().RestartDeadline();
  COLLOPS_RETURN_IF_ERROR(exchange_->step().Until([&] {
    progress = Progress();
    return !progress.ok() || ready();
  }));
  exchange_->step().waiter().RestartDeadline();
  return progress;
}

bool ShmFusedCall::OwnInputTaken() const {
  if (exchange_->own_place() == InputPlace::kCallRecord) return true;
  if (exchange_->own_place() == InputPlace::kStage) return num_staged_ == num_to_stage_;
  return AllReaders([](int64_t num_read) { return num_read > 0; });
}

Status ShmFusedCall::End() {
  COLLOPS_RETURN_IF_ERROR(Wait([&] {
    return OwnInputTaken() &&
           std::all_of(rows_known_.begin(), rows_known_.end(), [](bool known) { return known; });
  }));
  // The peers that read this rank's input in place have signalled that they are done.
  COLLOPS_RETURN_IF_ERROR(exchange_->step().End());
  old_memory_.reset();  // all ranks have begun this call
  return Ok();
}

}  // namespace collops::shm

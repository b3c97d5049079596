#include "comm/backends/shm/fused_call.h"

#include <algorithm>

#include "core/interrupt.h"
#include "kernels/copy.h"

namespace collops::shm {
namespace {

// A count of a call: the low bits count, the others are the call's number, so no reset is needed.
constexpr int kCountBits = 24;
constexpr int64_t kSlots = kStageBytes / MatrixCut::kPartBytes;
constexpr double kLookS = 0.1;

bool Contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// A little more than asked for, so that calls that grow row by row do not each need new memory.
int64_t Roomy(int64_t bytes) {
  int64_t unit = 4096;
  while (unit * 16 <= bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

// What a rank announced of one of its two groups. A peer's numbers are not trusted.
struct AnnouncedRows {
  int first = 0;
  int64_t count = 0;
  const int64_t* rows = nullptr;
};

AnnouncedRows Readers(const Endpoint& endpoint, int rank, uint64_t sequence) {
  const Announcement& call = endpoint.layout().announcement(rank, sequence);
  const int size = endpoint.size();
  return {std::clamp(call.first_reader, 0, size - 1), std::clamp(call.num_readers, 0, size),
          endpoint.layout().counts(rank, sequence)};
}

AnnouncedRows Combiners(const Endpoint& endpoint, int rank, uint64_t sequence) {
  const Announcement& call = endpoint.layout().announcement(rank, sequence);
  const int size = endpoint.size();
  return {std::clamp(call.first_combiner, 0, size - 1), std::clamp(call.num_combiners, 0, size),
          endpoint.layout().counts(rank, sequence) + size};
}

// The first number in which the lists of two members of a group differ.
Status CompareRows(const Endpoint& endpoint, CallKind kind, const char* name, int rank,
                   const AnnouncedRows& mine, int other, const AnnouncedRows& theirs) {
  const auto show = [](const AnnouncedRows& list, int64_t i) {
    return i < list.count ? std::to_string(list.rows[i]) : "missing";
  };
  for (int64_t i = 0; i < std::max(mine.count, theirs.count); ++i) {
    if (i < mine.count && i < theirs.count && mine.rows[i] == theirs.rows[i]) continue;
    return Error(ERROR_RANK_MISMATCH, Name(kind), ": the ranks disagree: ", name, "[", i, "] is ",
                 show(mine, i), " on rank ", rank, " (pid ", endpoint.pid(rank), ") and ",
                 show(theirs, i), " on rank ", other, " (pid ", endpoint.pid(other), ")");
  }
  return Ok();
}

}  // namespace

void AnnounceFused(const FusedCallSpec& spec, const Endpoint& endpoint, uint64_t sequence,
                   Announcement* mine) {
  mine->num_readers = static_cast<int32_t>(spec.readers->size());
  mine->num_combiners = static_cast<int32_t>(spec.combiners->size());
  mine->first_reader = spec.readers->front();
  mine->first_combiner = spec.combiners->front();
  int64_t* terms = endpoint.layout().terms(endpoint.rank(), sequence);
  for (int i = 0; i < spec.num_terms; ++i) terms[i] = spec.terms[i].value;
  int64_t* numbers = endpoint.layout().counts(endpoint.rank(), sequence);
  std::copy(spec.reader_rows->begin(), spec.reader_rows->end(), numbers);
  std::copy(spec.combiner_rows->begin(), spec.combiner_rows->end(), numbers + endpoint.size());
}

Status ShmFusedCall::Begin(const FusedCallSpec& spec, double timeout_s) {
  spec_ = &spec;
  info_ = CallInfo{};
  info_.kind = spec.kind;
  info_.dtype = spec.dtype;
  info_.root = spec.root;
  info_.fused = &spec;
  compared_.assign(static_cast<size_t>(endpoint_->size()), false);
  reader_rows_.resize(static_cast<size_t>(endpoint_->size()));
  uint32_t tile_window = 0;
  const Status tiles = PrepareTiles(spec.tile_bytes, &tile_window);
  if (!tiles.ok()) {
    // This rank's fault alone: nothing has moved, and the next call may find memory.
    RETURN_IF_ERROR(exchange_->Refuse(spec.kind, tiles, timeout_s));
    return tiles;
  }
  PrepareSources();
  Input input;
  if (spec.readers->size() > 1) {
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (sources_[i].rank != endpoint_->rank()) continue;
      input = {static_cast<const std::byte*>(spec.x), sources_[i].rows * spec.row_bytes};
      own_cut_ = sources_[i].cut;
    }
  }
  RETURN_IF_ERROR(exchange_->Start(info_, input, tile_window, timeout_s));
  num_staged_ = 0;
  num_to_stage_ = exchange_->own_source() == shm::Source::kStage ? own_cut_.num_parts() : 0;
  compared_[static_cast<size_t>(endpoint_->rank())] = true;
  return Ok();
}

Status ShmFusedCall::PrepareTiles(int64_t bytes, uint32_t* window) {
  if (bytes == 0) return Ok();
  if (tiles_ == nullptr || tiles_->bytes() < bytes) {
    std::shared_ptr<Window> larger;
    RETURN_IF_ERROR(windows_->Allocate(Roomy(bytes), &larger));
    old_tiles_ = std::move(tiles_);
    tiles_ = std::move(larger);
  }
  WindowSpot spot;
  if (windows_->Find(tiles_->data(), bytes, &spot)) *window = spot.id;
  return Ok();
}

void ShmFusedCall::PrepareSources() {
  sources_.clear();
  for (size_t i = 0; i < spec_->readers->size(); ++i) {
    Source source;
    source.rank = (*spec_->readers)[i];
    source.rows = (*spec_->reader_rows)[i];
    source.cut = MatrixCut(source.rows, spec_->row_bytes);
    if (source.rank == endpoint_->rank()) {
      source.located = true;
      source.data = static_cast<const std::byte*>(spec_->x);
    }
    // In place it is one part, if there is anything at all.
    source.num_parts = std::min<int64_t>(source.cut.num_parts(), 1);
    sources_.push_back(source);
  }
}

Status ShmFusedCall::Progress() {
  RETURN_IF_ERROR(endpoint_->GroupFailure(exchange_->sequence()));
  if (next_look_.Passed()) {
    next_look_ = Deadline::After(kLookS);
    RETURN_IF_ERROR(Look());
  }
  RETURN_IF_ERROR(exchange_->HearArrived());
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r == endpoint_->rank() || compared_[static_cast<size_t>(r)] || !Heard(r)) continue;
    const Status same = Compare(r);
    if (!same.ok()) RETURN_IF_ERROR(exchange_->HearRest());
    RETURN_IF_ERROR(same);
  }
  for (Source& source : sources_) {
    if (!source.located && Heard(source.rank)) RETURN_IF_ERROR(Locate(&source));
  }
  while (CanStage()) StagePart();
  return Ok();
}

// What a wait looks for, now and then also while this rank computes.
Status ShmFusedCall::Look() {
  CHECK_ARG(!Interrupted(), ERROR_ABORTED, Name(spec_->kind), ": rank ", endpoint_->rank(),
            " was interrupted");
  const Status loss = endpoint_->FindLoss(exchange_->sequence());
  if (!loss.ok()) RETURN_IF_ERROR(endpoint_->GroupFailure(exchange_->sequence()));
  CHECK_ARG(loss.ok(), loss.code(), Name(spec_->kind), ": ", loss.message());
  return Ok();
}

Status ShmFusedCall::Compare(int rank) {
  compared_[static_cast<size_t>(rank)] = true;
  const uint64_t sequence = exchange_->sequence();
  const AnnouncedRows theirs = Readers(*endpoint_, rank, sequence);
  std::vector<int64_t>& rows = reader_rows_[static_cast<size_t>(rank)];
  rows.assign(theirs.rows, theirs.rows + theirs.count);
  const bool sound = rows.size() == spec_->readers->size() &&
                     std::all_of(rows.begin(), rows.end(), [](int64_t n) { return n >= 0; });
  CHECK_ARG(sound, ERROR_RANK_MISMATCH, Name(spec_->kind), ": rank ", rank, " (pid ",
            endpoint_->pid(rank), ") announced ", spec_->reader_rows_name, " of ", theirs.count,
            " ranks, or negative ones; rank ", endpoint_->rank(), " has ", spec_->readers->size());
  const int self = endpoint_->rank();
  if (Contains(*spec_->readers, rank)) RETURN_IF_ERROR(CompareReaders(self, rank));
  return Contains(*spec_->combiners, rank) ? CompareCombiners(self, rank) : Ok();
}

Status ShmFusedCall::CompareReaders(int rank, int other) const {
  const uint64_t sequence = exchange_->sequence();
  return CompareRows(*endpoint_, spec_->kind, spec_->reader_rows_name, rank,
                     Readers(*endpoint_, rank, sequence), other,
                     Readers(*endpoint_, other, sequence));
}

Status ShmFusedCall::CompareCombiners(int rank, int other) const {
  const uint64_t sequence = exchange_->sequence();
  return CompareRows(*endpoint_, spec_->kind, spec_->combiner_rows_name, rank,
                     Combiners(*endpoint_, rank, sequence), other,
                     Combiners(*endpoint_, other, sequence));
}

// All ranks hear of a disagreement, also those whose groups agree and whose part is done.
Status ShmFusedCall::CompareOtherGroups() const {
  const uint64_t sequence = exchange_->sequence();
  for (int r = 0; r < endpoint_->size(); ++r) {
    RETURN_IF_ERROR(CompareReaders(Readers(*endpoint_, r, sequence).first, r));
    RETURN_IF_ERROR(CompareCombiners(Combiners(*endpoint_, r, sequence).first, r));
  }
  return Ok();
}

Status ShmFusedCall::Locate(Source* source) {
  RETURN_IF_ERROR(
      exchange_->PeerInput(source->rank, source->rows * spec_->row_bytes, &source->data));
  source->located = true;
  if (source->data == nullptr) source->num_parts = source->cut.num_parts();
  return Ok();
}

bool ShmFusedCall::NextPart(size_t index, MatrixPart* part) {
  const Source& source = sources_[index];
  if (!source.located || source.num_read == source.num_parts) return false;
  if (source.data != nullptr) {
    *part = {source.data, spec_->row_bytes, 0, source.rows, 0, spec_->row_bytes};
    return true;
  }
  if (Signalled(source.rank, ProducedIndex()) <= source.num_read) return false;
  *part = source.cut.Part(source.num_read);
  part->ld_bytes = part->end - part->begin;
  part->data =
      endpoint_->layout().stage(source.rank) + source.num_read % kSlots * MatrixCut::kPartBytes;
  return true;
}

void ShmFusedCall::ReleasePart(size_t index) {
  Source& source = sources_[index];
  ++source.num_read;
  if (source.rank != endpoint_->rank()) Signal(ConsumedIndex(source.rank), source.num_read);
}

bool ShmFusedCall::AllRead(size_t index) const {
  const Source& source = sources_[index];
  return source.located && source.num_read == source.num_parts;
}

bool ShmFusedCall::CanStage() const {
  if (num_staged_ == num_to_stage_ || !TilesFree()) return false;
  return std::all_of(spec_->readers->begin(), spec_->readers->end(), [&](int reader) {
    return reader == endpoint_->rank() ||
           Signalled(reader, ConsumedIndex(endpoint_->rank())) + kSlots > num_staged_;
  });
}

void ShmFusedCall::StagePart() {
  const MatrixPart part = own_cut_.Part(num_staged_);
  const int64_t width = part.end - part.begin;
  std::byte* slot =
      endpoint_->layout().stage(endpoint_->rank()) + num_staged_ % kSlots * MatrixCut::kPartBytes;
  const std::byte* source =
      static_cast<const std::byte*>(spec_->x) + part.row * spec_->row_bytes + part.begin;
  if (width == spec_->row_bytes) {
    kernels::Copy(slot, source, part.rows * width);
  } else {
    for (int64_t row = 0; row < part.rows; ++row) {
      kernels::Copy(slot + row * width, source + row * spec_->row_bytes, width);
    }
  }
  Signal(ProducedIndex(), ++num_staged_);
}

std::byte* ShmFusedCall::tiles() const {
  return spec_->tile_bytes == 0 ? nullptr : static_cast<std::byte*>(tiles_->data());
}

Status ShmFusedCall::PeerTiles(int rank, const std::byte** tiles) const {
  *tiles = nullptr;
  if (spec_->tile_bytes == 0) return Ok();
  return exchange_->PeerTiles(rank, spec_->tile_bytes, tiles);
}

void ShmFusedCall::Signal(int index, int64_t count) {
  FusedSignal& signal = endpoint_->layout().fused_signal(endpoint_->rank(), index);
  signal.value.store((exchange_->sequence() << kCountBits) + static_cast<uint64_t>(count),
                     std::memory_order_release);
  endpoint_->RingAll();
}

int64_t ShmFusedCall::Signalled(int rank, int index) const {
  const FusedSignal& signal = endpoint_->layout().fused_signal(rank, index);
  const uint64_t value = signal.value.load(std::memory_order_acquire);
  if (value >> kCountBits != exchange_->sequence()) return 0;
  return static_cast<int64_t>(value & ((uint64_t{1} << kCountBits) - 1));
}

Status ShmFusedCall::Wait(const std::function<bool()>& ready) {
  Status progress;
  exchange_->RestartDeadline();
  RETURN_IF_ERROR(exchange_->Until([&] {
    progress = Progress();
    return !progress.ok() || ready();
  }));
  return progress;
}

bool ShmFusedCall::OwnInputTaken() const {
  if (exchange_->own_source() == shm::Source::kSlot) return true;
  if (exchange_->own_source() == shm::Source::kStage) return num_staged_ == num_to_stage_;
  return std::all_of(spec_->readers->begin(), spec_->readers->end(), [&](int reader) {
    return reader == endpoint_->rank() || Signalled(reader, ConsumedIndex(endpoint_->rank())) > 0;
  });
}

Status ShmFusedCall::End() {
  RETURN_IF_ERROR(Wait([&] {
    return OwnInputTaken() &&
           std::all_of(compared_.begin(), compared_.end(), [](bool done) { return done; });
  }));
  RETURN_IF_ERROR(CompareOtherGroups());
  RETURN_IF_ERROR(exchange_->Leave());
  // All ranks have begun this call, so nobody reads the tiles of the one before.
  old_tiles_.reset();
  return Ok();
}

}  // namespace collops::shm

#include "collops/comm/backends/shm/exchange.h"

#include "collops/kernels/copy.h"

namespace collops::shm {

Exchange::Exchange(control::Control* control, WindowTable* windows)
    : control_(control),
      endpoint_(&control->endpoint()),
      step_(&control->step()),
      windows_(windows),
      layout_(control->backend_memory(), endpoint_->size()),
      mailbox_(endpoint_, windows),
      peers_(static_cast<size_t>(endpoint_->size())) {
  endpoint_->PlaceHeads(layout_.heads());
  control->set_drain([this] { mailbox_.Drain(); });
}

Status Exchange::Start(const Agreement& agreement, const SharedInput& input, uint32_t tile_window) {
  COLLOPS_RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
  CallRecord& mine = layout_.call_record(endpoint_->rank(), step_->number());
  COLLOPS_RETURN_IF_ERROR(Place(input, tile_window, &mine));
  step_->Publish();
  return Ok();
}

Status Exchange::AwaitAll() {
  return step_->AwaitAll([this](int rank) { return TakeCallRecord(rank); });
}

Status Exchange::ReadArrived() {
  return step_->ReadArrived([this](int rank) { return TakeCallRecord(rank); });
}

// A small input in a window goes through the call record, too: End() need not wait for readers.
Status Exchange::Place(const SharedInput& input, uint32_t tile_window, CallRecord* mine) {
  if (input.bytes > kCallRecordBytes) return PlaceLong(input, tile_window, mine);
  peer_copy_.Copy(mine->data, input.data, input.bytes);
  return PlaceLong(SharedInput{}, tile_window, mine);
}

Status Exchange::PlaceLong(const SharedInput& input, uint32_t tile_window, CallRecord* mine) {
  WindowSpot spot;
  own_place_ = InputPlace::kCallRecord;
  if (input.bytes == 0 || endpoint_->size() == 1) {
    // No peer reads it.
  } else if (!input.changes && windows_->Find(input.data, input.bytes, &spot)) {
    own_place_ = InputPlace::kWindow;
    mine->window_id = spot.id;
    mine->window_offset = spot.offset;
  } else {
    own_place_ = InputPlace::kStage;
  }
  mine->place = own_place_;
  mine->tile_window_id = tile_window;
  mine->staged_first = 0;
  for (const uint32_t id : {spot.id, tile_window}) {
    if (windows_->HasUpdates(id)) COLLOPS_RETURN_IF_ERROR(mailbox_.Send(id, &step_->waiter()));
  }
  mine->mails = mailbox_.sent();
  return Ok();
}

// Copies the fields of a peer's call record once.
Status Exchange::TakeCallRecord(int rank) {
  const CallRecord& theirs = layout_.call_record(rank, step_->number());
  PeerCall& peer = peers_[static_cast<size_t>(rank)];
  peer.place = theirs.place;
  peer.spot = {theirs.window_id, theirs.window_offset};
  peer.tile_window = theirs.tile_window_id;
  peer.staged_first = theirs.staged_first != 0;
  if (peer.keeps) {
    peer.input = peer.tiles = control::Segment();
    peer.keeps = false;
  }
  const uint64_t mails = theirs.mails;
  if (mailbox_.received(rank) >= mails) return Ok();
  return mailbox_.Expect(rank, mails, &step_->waiter());
}

const std::byte* Exchange::InWindow(int rank, const WindowSpot& spot, int64_t bytes,
                                    control::Segment* window) {
  if (window->data() == nullptr) *window = mailbox_.Find(rank, spot.id);
  peers_[static_cast<size_t>(rank)].keeps = true;
  return WindowMailbox::Range(*window, spot.offset, bytes);
}

Status Exchange::PeerInput(int rank, int64_t bytes, const std::byte** data) {
  PeerCall& peer = peers_[static_cast<size_t>(rank)];
  *data = nullptr;
  if (peer.place == InputPlace::kCallRecord && bytes <= kCallRecordBytes) {
    *data = layout_.call_record(rank, step_->number()).data;
    return Ok();
  }
  if (peer.place == InputPlace::kStage && bytes > kCallRecordBytes) return Ok();
  if (peer.place == InputPlace::kWindow) {
    *data = InWindow(rank, peer.spot, bytes, &peer.input);
  }
  if (*data != nullptr) return Ok();
  return NotShared(rank, Concat(bytes, " bytes"), peer.spot);
}

Status Exchange::PeerPart(int rank, int64_t begin, int64_t bytes, const std::byte** data) {
  PeerCall& peer = peers_[static_cast<size_t>(rank)];
  *data = nullptr;
  if (peer.place == InputPlace::kStage) return Ok();
  const bool adds_up = begin >= 0 && peer.spot.offset >= 0 && begin <= INT64_MAX - peer.spot.offset;
  if (peer.place == InputPlace::kWindow && adds_up) {
    *data = InWindow(rank, {peer.spot.id, peer.spot.offset + begin}, bytes, &peer.input);
  }
  if (*data != nullptr) return Ok();
  return NotShared(rank, Concat(bytes, " bytes"), {peer.spot.id, begin});
}

Status Exchange::PeerTiles(int rank, int64_t bytes, const std::byte** data) {
  PeerCall& peer = peers_[static_cast<size_t>(rank)];
  const WindowSpot tiles{peer.tile_window, 0};
  *data = InWindow(rank, tiles, bytes, &peer.tiles);
  if (*data != nullptr) return Ok();
  return NotShared(rank, Concat("tiles of ", bytes, " bytes"), tiles);
}

Status Exchange::NotShared(int rank, const std::string& what, const WindowSpot& where) const {
  COLLOPS_RETURN_IF_ERROR(mailbox_.WhyNotMapped(rank, where.id));
  return Error(ERROR_PEER_LOST, endpoint_->Who(rank), " announced ", what, " in window ", where.id,
               " at ", where.offset, ", which it has not shared");
}

namespace {

constexpr int64_t kPageBytes = 4096;

constexpr int64_t RoundDown(int64_t bytes, int64_t unit) {
  return bytes / unit * unit;
}

}  // namespace

StageShape StageShape::LanePerPeer(int rank_size) {
  const int64_t lanes = std::max(rank_size - 1, 1);
  const int64_t lane_bytes = RoundDown(std::min(kStageBytes / lanes, kMostLaneBytes), kPageBytes);
  return {lane_bytes, std::min(kChunkBytes, RoundDown(lane_bytes / 2, kPageBytes)), kOneReader};
}

StageShape StageShape::ForSkew(int64_t largest_bytes, int64_t all_bytes) const {
  if (largest_bytes <= all_bytes - all_bytes / 4) return *this;
  const int64_t eighth = RoundDown(largest_bytes / 8, kPageBytes);
  return {lane_bytes, std::min(chunk_bytes, std::max(eighth, kLeastChunkBytes)), readers};
}

void StageFirst(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes) {
  const int64_t slot = shape.FirstSlot(bytes, exchange->step().number());
  exchange->peer_copy().Copy(exchange->layout().stage(exchange->rank()) + lane * shape.lane_bytes +
                                 slot * shape.chunk_bytes,
                             source, std::min(shape.chunk_bytes, bytes));
}

// The counters are never reset: a call continues from the earlier calls' counts. The readers have
// read all earlier chunks, so their counts equal the writer's own.
StageWriter::StageWriter(Exchange* exchange, StageShape shape, int lane, const void* source,
                         int64_t bytes, int reader)
    : exchange_(exchange),
      shape_(shape),
      lane_(exchange->layout().stage(exchange->rank()) + lane * shape.lane_bytes),
      source_(static_cast<const std::byte*>(source)),
      bytes_(bytes),
      reader_(reader),
      num_chunks_(shape.NumChunks(bytes)),
      first_slot_(shape.FirstSlot(bytes, exchange->step().number())) {
  if (exchange->staged_first() && num_chunks_ > 0) CountChunk();
}

bool StageWriter::CanWrite() const {
  if (Done()) return false;
  const auto slots = static_cast<uint64_t>(shape_.num_slots());
  if (static_cast<uint64_t>(written_) < slots) return true;  // no chunk of this call is overwritten
  const SegmentLayout& layout = exchange_->layout();
  const int rank = exchange_->rank();
  const uint64_t written =
      layout.produced(rank, reader_, shape_.readers).load(std::memory_order_relaxed);
  return AllReaders([&](int r) {
    return UnreadForSender(written, layout.consumed(rank, r, shape_.readers)) < slots;
  });
}

void StageWriter::WriteChunk() {
  const int64_t begin = written_ * shape_.chunk_bytes;
  const int64_t slot = (first_slot_ + written_) % shape_.num_slots();
  exchange_->peer_copy().Copy(lane_ + slot * shape_.chunk_bytes, source_ + begin,
                              std::min(shape_.chunk_bytes, bytes_ - begin));
  CountChunk();
}

void StageWriter::CountChunk() {
  ++written_;
  std::atomic<uint64_t>& produced =
      exchange_->layout().produced(exchange_->rank(), reader_, shape_.readers);
  Publish(&produced, produced.load(std::memory_order_relaxed) + 1);
  AllReaders([&](int r) {
    exchange_->endpoint().Ring(r);
    return true;
  });
}

StageReader::StageReader(Exchange* exchange, StageShape shape, int lane, int writer, int64_t bytes)
    : exchange_(exchange),
      shape_(shape),
      lane_(exchange->layout().stage(writer) + lane * shape.lane_bytes),
      writer_(writer),
      bytes_(bytes),
      num_chunks_(shape.NumChunks(bytes)),
      first_slot_(shape.FirstSlot(bytes, exchange->step().number())),
      base_(exchange->layout()
                .consumed(writer, exchange->rank(), shape.readers)
                .load(std::memory_order_relaxed)),
      known_(exchange->HasStagedFirst(writer) ? 1 : 0) {}

bool StageReader::CanRead() const {
  if (Done()) return false;
  if (read_ < known_) return true;
  // Below 0 if the chunk that was staged first has been read before it was counted.
  const auto unread = static_cast<int64_t>(
      UnreadForReceiver(exchange_->layout().produced(writer_, exchange_->rank(), shape_.readers),
                        base_ + static_cast<uint64_t>(read_)));
  return unread > 0;
}

const std::byte* StageReader::Chunk() const {
  return lane_ + (first_slot_ + read_) % shape_.num_slots() * shape_.chunk_bytes;
}

void StageReader::Release() {
  ++read_;
  Publish(&exchange_->layout().consumed(writer_, exchange_->rank(), shape_.readers),
          base_ + static_cast<uint64_t>(read_));
  exchange_->endpoint().Ring(writer_);
}

}  // namespace collops::shm

#include "collops/comm/backends/shm/exchange.h"

namespace collops::shm {

Exchange::Exchange(control::Control* control, WindowTable* windows)
    : control_(control),
      endpoint_(&control->endpoint()),
      step_(&control->step()),
      windows_(windows),
      layout_(control->backend_memory(), endpoint_->size()),
      mail_(endpoint_),
      peers_(static_cast<size_t>(endpoint_->size())) {
  endpoint_->PlaceHeads(layout_.heads());
  control->set_drain([this] { mail_.Drain(); });
}

Status Exchange::Start(const Agreement& agreement, const Input& input, uint32_t tile_window) {
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
Status Exchange::Place(const Input& input, uint32_t tile_window, CallRecord* mine) {
  if (input.bytes > kCallRecordBytes) return PlaceLong(input, tile_window, mine);
  peer_copy_.Copy(mine->data, input.data, input.bytes);
  return PlaceLong(Input{}, tile_window, mine);
}

Status Exchange::PlaceLong(const Input& input, uint32_t tile_window, CallRecord* mine) {
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
    if (windows_->HasNews(id)) COLLOPS_RETURN_IF_ERROR(mail_.Send(windows_, id, &step_->waiter()));
  }
  mine->mails = mail_.sent();
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
  if (mail_.received(rank) >= mails) return Ok();
  return mail_.Expect(rank, mails, &step_->waiter());
}

const std::byte* Exchange::InWindow(int rank, const WindowSpot& spot, int64_t bytes,
                                    control::Segment* window) {
  if (window->data() == nullptr) *window = mail_.Find(rank, spot.id);
  peers_[static_cast<size_t>(rank)].keeps = true;
  return WindowMail::Range(*window, spot.offset, bytes);
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
  COLLOPS_RETURN_IF_ERROR(mail_.WhyNotMapped(rank, where.id));
  return Error(ERROR_PEER_LOST, endpoint_->Who(rank), " announced ", what, " in window ", where.id,
               " at ", where.offset, ", which it has not shared");
}

}  // namespace collops::shm

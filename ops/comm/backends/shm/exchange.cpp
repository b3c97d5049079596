#include "comm/backends/shm/exchange.h"

#include <algorithm>
#include <cstring>

#include "comm/backends/shm/fused_call.h"
#include "comm/backends/shm/socket.h"
#include "core/fence.h"
#include "kernels/copy.h"

namespace collops::shm {
Status Exchange::Begin(const CallInfo& info, const Input& input, double timeout_s) {
  RETURN_IF_ERROR(Start(info, input, 0, timeout_s));
  return HearAll();
}

Status Exchange::Start(const CallInfo& info, const Input& input, uint32_t tile_window,
                       double timeout_s) {
  RETURN_IF_ERROR(CatchUp(timeout_s));
  Enter(info.kind, timeout_s);
  info_ = &info;
  signature_ = Signature(info, endpoint_->size());
  unheard_.clear();
  for (int r = 0; r < endpoint_->size(); ++r) {
    if (r != endpoint_->rank()) unheard_.push_back(r);
  }
  Announcement& mine = endpoint_->layout().announcement(endpoint_->rank(), sequence_);
  RETURN_IF_ERROR(Place(input, tile_window, &mine));
  Announce(&mine);
  return Ok();
}

void Exchange::Enter(CallKind kind, double timeout_s) {
  ++sequence_;
  waiter_.emplace(endpoint_, mail_, timeout_s, sequence_, Name(kind));
}

// A rank may be one announcement ahead of its peers, not two: they keep two places for it.
Status Exchange::CatchUp(double timeout_s) {
  refused_ = false;
  if (!behind_) return Ok();
  waiter_.emplace(endpoint_, mail_, timeout_s, sequence_, "the call after a refusal");
  for (int r = 0; r < endpoint_->size(); ++r) {
    const Announcement& theirs = endpoint_->layout().announcement(r, sequence_);
    RETURN_IF_ERROR(
        Until([&] { return theirs.sequence.load(std::memory_order_acquire) >= sequence_; }));
  }
  behind_ = false;
  return Ok();
}

// Small inputs go through the slot even from a window: its owner then need not wait for readers.
Status Exchange::Place(const Input& input, uint32_t tile_window, Announcement* mine) {
  WindowSpot spot;
  mine->source = Source::kSlot;
  if (input.bytes <= kSlotBytes) {
    kernels::Copy(endpoint_->layout().slot(endpoint_->rank(), sequence_), input.data, input.bytes);
  } else if (windows_->Find(input.data, input.bytes, &spot)) {
    mine->source = Source::kWindow;
    mine->window_id = spot.id;
    mine->window_offset = spot.offset;
  } else {
    mine->source = Source::kStage;
  }
  own_source_ = mine->source;
  mine->tile_window_id = tile_window;
  for (const uint32_t id : {spot.id, tile_window}) {
    if (windows_->HasNews(id)) RETURN_IF_ERROR(mail_->Send(windows_, id, &*waiter_));
  }
  mine->mails = mail_->sent();
  return Ok();
}

void Exchange::Announce(Announcement* mine) {
  const size_t size = static_cast<size_t>(endpoint_->size());
  mine->kind = info_->kind;
  mine->dtype = info_->dtype;
  mine->op = info_->op;
  mine->root = info_->root;
  mine->x_shape = info_->x_shape;
  mine->label = info_->label;
  mine->signature = signature_;
  mine->refusal = NO_ERROR;
  if (info_->counts != nullptr) {
    int64_t* counts = endpoint_->layout().counts(endpoint_->rank(), sequence_);
    std::memcpy(counts, info_->counts, size * sizeof(int64_t));
    std::memcpy(counts + size, info_->displs, size * sizeof(int64_t));
  }
  if (info_->fused != nullptr) AnnounceFused(*info_->fused, *endpoint_, sequence_, mine);
  mine->sequence.store(sequence_, std::memory_order_release);
  endpoint_->RingAll();
}

bool Exchange::HasAnnounced(int rank) const {
  const Announcement& theirs = endpoint_->layout().announcement(rank, sequence_);
  return theirs.sequence.load(std::memory_order_acquire) >= sequence_;
}

// In the order in which they come, so that a refusal is heard at once.
Status Exchange::HearAll() {
  int disagreeing = -1;
  while (!unheard_.empty()) {
    auto next = unheard_.end();
    RETURN_IF_ERROR(Until([&] {
      next = std::find_if(unheard_.begin(), unheard_.end(), [&](int r) { return HasAnnounced(r); });
      return next != unheard_.end();
    }));
    const int r = *next;
    unheard_.erase(next);
    RETURN_IF_ERROR(Hear(r));
    const Announcement& theirs = endpoint_->layout().announcement(r, sequence_);
    if (theirs.signature != signature_) disagreeing = r;
  }
  if (disagreeing < 0) return Ok();
  return DescribeDisagreement(*endpoint_, *info_, sequence_, disagreeing);
}

Status Exchange::HearArrived() {
  int disagreeing = -1;
  for (size_t i = 0; i < unheard_.size();) {
    const int r = unheard_[i];
    if (!HasAnnounced(r)) {
      ++i;
      continue;
    }
    unheard_.erase(unheard_.begin() + static_cast<std::ptrdiff_t>(i));
    RETURN_IF_ERROR(Hear(r));
    const Announcement& theirs = endpoint_->layout().announcement(r, sequence_);
    if (theirs.signature != signature_) disagreeing = r;
  }
  if (disagreeing < 0) return Ok();
  RETURN_IF_ERROR(HearRest());
  return DescribeDisagreement(*endpoint_, *info_, sequence_, disagreeing);
}

Status Exchange::HearRest() {
  RestartDeadline();
  const Status rest = HearAll();
  const bool missing = rest.code() == ERROR_TIMEOUT || rest.code() == ERROR_PEER_LOST;
  return missing ? Ok() : rest;
}

Status Exchange::Hear(int rank) {
  const Announcement& theirs = endpoint_->layout().announcement(rank, sequence_);
  if (theirs.refusal != NO_ERROR) {
    refused_ = true;
    behind_ = !unheard_.empty();
    Finish();
    return Error(ERROR_RANK_MISMATCH, Name(info_->kind), ": rank ", rank, " (pid ",
                 endpoint_->pid(rank), ") refused call ", sequence_, ": ",
                 ReadReason(endpoint_->layout().refusal_reason(rank, sequence_)));
  }
  peers_[static_cast<size_t>(rank)] = {
      theirs.source, {theirs.window_id, theirs.window_offset}, theirs.tile_window_id};
  if (mail_->received(rank) >= theirs.mails) return Ok();
  return mail_->Expect(rank, theirs.mails, &*waiter_);
}

Status Exchange::PeerInput(int rank, int64_t bytes, const std::byte** data) const {
  const PeerCall& peer = peers_[static_cast<size_t>(rank)];
  *data = nullptr;
  if (peer.source == Source::kSlot && bytes <= kSlotBytes) {
    *data = endpoint_->layout().slot(rank, sequence_);
    return Ok();
  }
  if (peer.source == Source::kStage && bytes > kSlotBytes) return Ok();
  if (peer.source == Source::kWindow) {
    *data = mail_->Find(rank, peer.spot.id, peer.spot.offset, bytes);
  }
  if (*data == nullptr && mail_->lost_descriptors()) return TooManyFiles();
  CHECK_ARG(*data != nullptr, ERROR_PEER_LOST, "rank ", rank, " (pid ", endpoint_->pid(rank),
            ") announced ", bytes, " bytes in window ", peer.spot.id, " at ", peer.spot.offset,
            ", which it has not shared");
  return Ok();
}

Status Exchange::PeerTiles(int rank, int64_t bytes, const std::byte** data) const {
  const uint32_t window = peers_[static_cast<size_t>(rank)].tile_window;
  *data = mail_->Find(rank, window, 0, bytes);
  if (*data == nullptr && mail_->lost_descriptors()) return TooManyFiles();
  CHECK_ARG(*data != nullptr, ERROR_PEER_LOST, "rank ", rank, " (pid ", endpoint_->pid(rank),
            ") announced tiles of ", bytes, " bytes in window ", window,
            ", which it has not shared");
  return Ok();
}

bool Exchange::PreviousCallFinished() const {
  for (int r = 0; r < endpoint_->size(); ++r) {
    const RankState& state = endpoint_->layout().rank(r);
    if (state.finished.load(std::memory_order_acquire) + 1 < sequence_) return false;
  }
  return true;
}

void Exchange::Finish() {
  RankState& self = endpoint_->layout().rank(endpoint_->rank());
  self.finished.store(sequence_, std::memory_order_release);
  endpoint_->RingAll();
}

Status Exchange::Leave() {
  // A peer that ended its call early publishes the failure before it touches its window again.
  Fence(std::memory_order_acquire);
  RETURN_IF_ERROR(endpoint_->GroupFailure(sequence_));
  Finish();
  return Ok();
}

Status Exchange::End() {
  RETURN_IF_ERROR(Leave());
  if (own_source_ != Source::kWindow) return Ok();
  for (int r = 0; r < endpoint_->size(); ++r) {
    const RankState& state = endpoint_->layout().rank(r);
    RETURN_IF_ERROR(
        Until([&] { return state.finished.load(std::memory_order_acquire) >= sequence_; }));
  }
  return Ok();
}

Status Exchange::Refuse(CallKind kind, const Status& reason, double timeout_s) {
  RETURN_IF_ERROR(CatchUp(timeout_s));
  Enter(kind, timeout_s);
  const int rank = endpoint_->rank();
  char* text = endpoint_->layout().refusal_reason(rank, sequence_);
  text[reason.message().copy(text, kReasonBytes - 1)] = '\0';
  Announcement& mine = endpoint_->layout().announcement(rank, sequence_);
  mine.source = Source::kSlot;
  mine.mails = mail_->sent();
  mine.refusal = reason.code();
  mine.sequence.store(sequence_, std::memory_order_release);
  behind_ = true;
  refused_ = true;
  Finish();
  return Ok();
}

}  // namespace collops::shm

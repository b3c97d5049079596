#include "collops/comm/backends/ucx/engine/chunks.h"

namespace collops::ucx {
namespace {

size_t Slot(int64_t chunk) {
  return static_cast<size_t>(chunk % kStreamSlots);
}

}  // namespace

OutgoingChunks::OutgoingChunks(Worker* worker, int peer, const Tag& tag, const Tag& credit_tag,
                               const ChunkMemory& memory, const Chunking& chunking)
    : worker_(worker),
      peer_(peer),
      tag_(tag),
      credit_tag_(credit_tag),
      memory_(memory),
      chunking_(chunking),
      credits_(chunking.free_chunks) {}

Status OutgoingChunks::Advance() {
  COLLOPS_RETURN_IF_ERROR(ReadCredits());
  const int64_t ready = std::min(offered_, credits_);
  for (; sent_ < started_ && worker_->Test(&requests_[Slot(sent_)]); ++sent_) {
    COLLOPS_RETURN_IF_ERROR(worker_->StatusOf(requests_[Slot(sent_)]));
  }
  for (; started_ < ready && started_ < sent_ + kStreamSlots; ++started_) {
    const std::byte* const data = memory_.At(started_, chunking_.chunk_bytes);
    const auto bytes = static_cast<size_t>(chunking_.BytesOf(started_));
    const bool last = started_ + 1 == chunking_.count();
    COLLOPS_RETURN_IF_ERROR(worker_->Send(peer_, tag_.Of(TagKind::kData), data, bytes,
                                          &requests_[Slot(started_)],
                                          last ? SendDone::kHandedOver : SendDone::kTaken));
  }
  return Ok();
}

Status OutgoingChunks::ReadCredits() {
  while (credits_ < chunking_.count()) {
    if (!credit_posted_) {
      COLLOPS_RETURN_IF_ERROR(worker_->Receive(peer_, credit_tag_.Of(TagKind::kCredit), &received_,
                                               sizeof(received_), &credit_));
      credit_posted_ = true;
    }
    if (!worker_->Test(&credit_)) return Ok();
    COLLOPS_RETURN_IF_ERROR(worker_->StatusOf(credit_));
    credit_posted_ = false;
    const bool valid = credit_.bytes() == sizeof(received_) && received_ > credits_ &&
                       received_ <= chunking_.count();
    COLLOPS_CHECK_ARG(valid, ERROR_RANK_MISMATCH, "backend ucx: peer ", peer_, " waits for chunk ",
                      received_, " of a message that has ", chunking_.count(), " here");
    credits_ = received_;
  }
  return Ok();
}

Status IncomingChunks::Advance() {
  for (; arrived_ < posted_ && worker_->Test(&requests_[Slot(arrived_)]); ++arrived_) {
    const Request& request = requests_[Slot(arrived_)];
    COLLOPS_RETURN_IF_ERROR(worker_->StatusOf(request));
    const int64_t bytes = chunking_.BytesOf(arrived_);
    COLLOPS_CHECK_ARG(request.bytes() == static_cast<size_t>(bytes), ERROR_RANK_MISMATCH,
                      "backend ucx: peer ", peer_, " sent ", request.bytes(), " bytes as chunk ",
                      arrived_, " of a message, it has ", bytes, " here");
  }
  COLLOPS_RETURN_IF_ERROR(Post());
  return Tell();
}

Status IncomingChunks::Post() {
  int64_t end = std::min(chunking_.count(), arrived_ + kStreamSlots);
  if (memory_.slots != 0) end = std::min(end, released_ + memory_.slots);
  for (; posted_ < end; ++posted_) {
    std::byte* const data = memory_.At(posted_, chunking_.chunk_bytes);
    const auto bytes = static_cast<size_t>(chunking_.BytesOf(posted_));
    COLLOPS_RETURN_IF_ERROR(
        worker_->Receive(peer_, tag_.Of(TagKind::kData), data, bytes, &requests_[Slot(posted_)]));
  }
  return Ok();
}

// One credit at a time is under way; the next one has everything that was posted meanwhile.
Status IncomingChunks::Tell() {
  if (!worker_->Test(&credit_)) return Ok();
  COLLOPS_RETURN_IF_ERROR(worker_->StatusOf(credit_));
  if (posted_ <= acknowledged_) return Ok();
  telling_ = posted_;
  acknowledged_ = posted_;
  return worker_->Send(peer_, credit_tag_.Of(TagKind::kCredit), &telling_, sizeof(telling_),
                       &credit_);
}

}  // namespace collops::ucx

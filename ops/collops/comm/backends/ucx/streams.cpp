#include "collops/comm/backends/ucx/communicator.h"

#include <poll.h>

#include <algorithm>

namespace collops::ucx {
namespace {

// How long the board may take to say why a peer is lost.
constexpr double kExplainS = 0.5;

// A small message is one of few, so it needs no credit.
constexpr int64_t kFreeChunks = 1;

}  // namespace

Tag Streams::TagFrom(int source, int number) const {
  return {step_->number(), source, number};
}

void Streams::Send(int to, int number, const void* data, int64_t bytes, int64_t chunk_bytes) {
  if (bytes == 0) return;
  const Chunking chunking = {bytes, chunk_bytes, kFreeChunks};
  Emplace(to, number, data, 0, chunking)->Offer(chunking.count());
}

OutgoingChunks* Streams::SendRing(int to, int number, const void* ring, int64_t bytes,
                                  int64_t chunk_bytes) {
  return Emplace(to, number, ring, kStreamSlots, {bytes, chunk_bytes, kFreeChunks});
}

OutgoingChunks* Streams::Emplace(int to, int number, const void* data, int64_t slots,
                                 const Chunking& chunking) {
  // UCX only reads it.
  auto* const base = static_cast<std::byte*>(const_cast<void*>(data));
  outgoing_.emplace_back(worker_, to, TagFrom(rank_, number), TagFrom(to, number),
                         ChunkMemory{base, slots}, chunking);
  return &outgoing_.back();
}

IncomingChunks* Streams::Receive(int from, int number, void* data, int64_t bytes, int64_t slots,
                                 int64_t chunk_bytes) {
  if (bytes == 0) return nullptr;
  incoming_.emplace_back(worker_, from, TagFrom(from, number), TagFrom(rank_, number),
                         ChunkMemory{static_cast<std::byte*>(data), slots},
                         Chunking{bytes, chunk_bytes, kFreeChunks});
  return &incoming_.back();
}

Status Streams::Advance() {
  for (auto& stream : incoming_) {
    if (!stream.done()) COLLOPS_RETURN_IF_ERROR(stream.Advance());
  }
  for (auto& stream : outgoing_) {
    if (!stream.done()) COLLOPS_RETURN_IF_ERROR(stream.Advance());
  }
  return Ok();
}

Status Streams::CheckPeer(int peer) const {
  if (!worker_->IsLost(peer)) return Ok();
  const Status loss = worker_->LossOf(peer);
  return Error(loss.code(), CallText(name_, step_->number()),
               " failed: ", step_->endpoint().Who(peer), " is lost: ", loss.message());
}

// A rank that ends a call early closes its connections before the group hears why.
Status Streams::Look() {
  COLLOPS_RETURN_IF_ERROR(GroupFailure());
  COLLOPS_RETURN_IF_ERROR(step_->LookAround());
  const Status loss = Loss();
  if (loss.ok()) return Ok();
  if (!explained_) explained_ = Deadline::After(kExplainS);
  return explained_->Passed() ? loss : Ok();
}

Status Streams::Loss() const {
  for (const auto& stream : incoming_) {
    if (!stream.done()) COLLOPS_RETURN_IF_ERROR(CheckPeer(stream.peer()));
  }
  for (const auto& stream : outgoing_) {
    if (!stream.done()) COLLOPS_RETURN_IF_ERROR(CheckPeer(stream.peer()));
  }
  return Ok();
}

Status Streams::Explain(const Status& failed) const {
  const Status loss = Loss();
  if (loss.ok()) return failed;
  for (const Deadline explained = Deadline::After(kExplainS); !explained.Passed();) {
    COLLOPS_RETURN_IF_ERROR(GroupFailure());
    COLLOPS_RETURN_IF_ERROR(step_->LookAround());
    poll(nullptr, 0, 1);
  }
  return loss;
}

Status Streams::TimedOut() const {
  const control::Endpoint& endpoint = step_->endpoint();
  const auto first = [](const auto& streams) {
    return std::find_if(streams.begin(), streams.end(),
                        [](const auto& stream) { return stream.waits_for_peer(); });
  };
  const auto from = first(incoming_);
  const auto to = first(outgoing_);
  std::string late;
  if (from != incoming_.end()) {
    late = Concat(endpoint.DescribeRank(from->peer()), " and has not sent all its data");
  } else if (to != outgoing_.end()) {
    late = Concat(endpoint.DescribeRank(to->peer()), " and has not taken all data");
  } else {
    late = endpoint.DescribeLate(step_->number());
  }
  return Error(ERROR_TIMEOUT, CallText(name_, step_->number()), " timed out after ", timeout_s_,
               " s: ", late);
}

bool Streams::Done() const {
  const auto done = [](const auto& stream) { return stream.done(); };
  return std::all_of(incoming_.begin(), incoming_.end(), done) &&
         std::all_of(outgoing_.begin(), outgoing_.end(), done);
}

Status Streams::Finish() {
  return Until([&] { return Done(); });
}

}  // namespace collops::ucx

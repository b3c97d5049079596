#include "collops/comm/pairs/pair_lane.h"

#include <algorithm>
#include <cstring>

namespace collops {
namespace {

void Describe(const Transfer& transfer, uint64_t number, Envelope* envelope) {
  envelope->number = number;
  envelope->digest = transfer.digest;
  envelope->elements = transfer.elements;
  envelope->tag = transfer.tag;
  envelope->dtype = transfer.dtype;
  std::memcpy(envelope->type, transfer.type, sizeof(envelope->type));
}

}  // namespace

void PairOutbox::Add(int index) {
  const int rank = context_->table[index].transfer.peer;
  peers_[static_cast<size_t>(rank)].queue.push_back(index);
  MarkBusy(rank);
}

void PairOutbox::MarkBusy(int rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  if (!peer.busy) busy_.push_back(rank);
  peer.busy = true;
}

WireStep PairOutbox::PostDirect(const Transfer& transfer, uint64_t* number) {
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  Describe(transfer, peer.last_number + 1, &direct_);
  const WireStep step =
      context_->wire->PostEnvelope(transfer.peer, direct_, transfer.data, transfer.bytes);
  if (step == WireStep::kDone) *number = ++peer.last_number;
  return step;
}

void PairOutbox::AddPosted(int index, uint64_t number) {
  OpenTransfer& entry = context_->table[index];
  entry.number = number;
  peers_[static_cast<size_t>(entry.transfer.peer)].sent.push_back({number, index});
  MarkBusy(entry.transfer.peer);
}

void PairOutbox::OnVerdict(int rank, const Verdict& verdict) {
  if (Judge(rank, &peers_[static_cast<size_t>(rank)], verdict)) return;
  context_->FailBroken(
      rank, Concat("verdict ", verdict.kind, " on message ", verdict.number, ", which is not due"));
}

bool PairOutbox::Poll() {
  bool moved = false;
  for (size_t i = 0; i < busy_.size() && context_->failure.ok();) {
    const int rank = busy_[i];
    Peer& peer = peers_[static_cast<size_t>(rank)];
    moved = PollPeer(rank, &peer) || moved;
    if (peer.idle()) {
      peer.busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

bool PairOutbox::ReadVerdicts() {
  bool moved = false;
  for (const int rank : busy_) {
    moved = ReadVerdictsOf(rank, &peers_[static_cast<size_t>(rank)]) || moved;
  }
  return moved;
}

bool PairOutbox::PollPeer(int rank, Peer* peer) {
  bool moved = ReadVerdictsOf(rank, peer);
  if (context_->failure.ok() && !peer->queue.empty()) moved = PostQueued(rank, peer) || moved;
  if (context_->failure.ok() && peer->going >= 0) moved = SendOn(rank, peer) || moved;
  return moved;
}

bool PairOutbox::ReadVerdictsOf(int rank, Peer* peer) {
  bool moved = false;
  Verdict verdict;
  while (!peer->sent.empty() && context_->failure.ok()) {
    const WireStep step = context_->wire->NextVerdict(rank, &verdict);
    if (step == WireStep::kNone) break;
    moved = true;
    if (step == WireStep::kBroken) {
      context_->Fail(context_->wire->fault());
    } else {
      OnVerdict(rank, verdict);
    }
  }
  return moved;
}

// False for a verdict that no correct receiver gives.
bool PairOutbox::Judge(int rank, Peer* peer, const Verdict& verdict) {
  const auto found =
      std::lower_bound(peer->sent.begin(), peer->sent.end(), verdict.number,
                       [](const Sent& sent, uint64_t number) { return sent.number < number; });
  if (found == peer->sent.end() || found->number != verdict.number) return false;
  const Sent sent = *found;
  OpenTransfer& entry = context_->table[sent.index];
  if (verdict.kind == Verdict::kGo) {
    if (peer->going >= 0) return false;
    peer->going = sent.index;
    return true;
  }
  if (peer->going == sent.index) {
    if (verdict.kind != Verdict::kDone || entry.moved != entry.transfer.bytes) return false;
    peer->going = -1;
  }
  peer->sent.erase(found);
  Close(rank, verdict, sent);
  return true;
}

void PairOutbox::Close(int rank, const Verdict& verdict, const Sent& sent) {
  TransferTable& table = context_->table;
  switch (verdict.kind) {
    case Verdict::kGo:
    case Verdict::kDone:
      table.Finish(sent.index);
      return;
    case Verdict::kMismatch:
      context_->Fail(Status(ERROR_RANK_MISMATCH, verdict.text));
      return;
    case Verdict::kRefused:
      table.Finish(sent.index,
                   RefusedBy(*context_->endpoint, table[sent.index].transfer, rank, sent.number,
                             table[sent.index].transfer.tag, verdict.text));
      return;
  }
}

bool PairOutbox::PostQueued(int rank, Peer* peer) {
  size_t posted = 0;
  WireStep step = WireStep::kDone;
  while (posted < peer->queue.size()) {
    const int index = peer->queue[posted];
    OpenTransfer& entry = context_->table[index];
    const Transfer& transfer = entry.transfer;
    Envelope envelope;
    Describe(transfer, peer->last_number + 1, &envelope);
    envelope.refusal = entry.refuses();
    if (envelope.refusal) envelope.reason = entry.refusal.message();
    step = context_->wire->PostEnvelope(rank, envelope, transfer.data, transfer.bytes);
    if (step != WireStep::kDone) break;
    ++posted;
    entry.number = ++peer->last_number;
    if (envelope.refusal) {
      context_->table.Free(index);
    } else {
      peer->sent.push_back({entry.number, index});
    }
  }
  if (step == WireStep::kBroken) context_->Fail(context_->wire->fault());
  peer->queue.erase(peer->queue.begin(), peer->queue.begin() + static_cast<std::ptrdiff_t>(posted));
  return posted > 0 || step == WireStep::kBroken;
}

bool PairOutbox::SendOn(int rank, Peer* peer) {
  OpenTransfer& entry = context_->table[peer->going];
  if (entry.moved == entry.transfer.bytes) return false;
  const WireStep step =
      context_->wire->SendBody(rank, entry.transfer.data, entry.transfer.bytes, &entry.moved);
  if (step == WireStep::kBroken) context_->Fail(context_->wire->fault());
  return step != WireStep::kNone;
}

void PairOutbox::ForgetRefusals(int peer) {
  std::vector<int>& queue = peers_[static_cast<size_t>(peer)].queue;
  const auto refusals = std::stable_partition(
      queue.begin(), queue.end(), [&](int index) { return !context_->table[index].refuses(); });
  std::for_each(refusals, queue.end(), [&](int index) { context_->table.Free(index); });
  queue.erase(refusals, queue.end());
}

}  // namespace collops

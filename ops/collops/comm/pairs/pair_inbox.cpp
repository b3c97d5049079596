#include "collops/comm/pairs/pair_lane.h"

#include <algorithm>
#include <utility>

namespace collops {
namespace {

template <typename T>
void EraseAt(std::vector<T>* list, size_t index) {
  list->erase(list->begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace

void PairInbox::Add(int index) {
  const Transfer& transfer = context_->table[index].transfer;
  int source = -1;
  size_t at = 0;
  if (FindHead(transfer, &source, &at)) {
    Envelope envelope = std::move(peer(source).heads[at].envelope);
    EraseAt(&peer(source).heads, at);
    Match(index, source, std::move(envelope));
    return;
  }
  posted_.push_back(index);
  if (transfer.peer == kAnySource) {
    ++from_any_;
  } else {
    ++peer(transfer.peer).wanted;
    MarkBusy(transfer.peer);
  }
}

void PairInbox::AddTaking(int index, Envelope&& envelope) {
  const int rank = context_->table[index].source;
  peer(rank).taking.push_back({index, std::move(envelope)});
  MarkBusy(rank);
}

void PairInbox::MarkBusy(int rank) {
  if (!peer(rank).busy) busy_.push_back(rank);
  peer(rank).busy = true;
}

// The first head with this tag from a given source; from any source, the one that was read first.
bool PairInbox::FindHead(const Transfer& transfer, int* source, size_t* head) const {
  const bool any = transfer.peer == kAnySource;
  uint64_t oldest = UINT64_MAX;
  for (int r = any ? 0 : transfer.peer; r < (any ? context_->rank_size() : transfer.peer + 1);
       ++r) {
    const std::vector<Head>& heads = peers_[static_cast<size_t>(r)].heads;
    const auto found = std::find_if(heads.begin(), heads.end(), [&](const Head& candidate) {
      return candidate.envelope.tag == transfer.tag;
    });
    if (found == heads.end() || found->order >= oldest) continue;
    oldest = found->order;
    *source = r;
    *head = static_cast<size_t>(found - heads.begin());
  }
  return oldest != UINT64_MAX;
}

bool PairInbox::Poll() {
  bool moved = false;
  if (from_any_ > 0) {
    first_ = (first_ + 1) % context_->rank_size();
    for (int i = 0; i < context_->rank_size() && context_->failure.ok(); ++i) {
      moved = PollPeer((first_ + i) % context_->rank_size()) || moved;
    }
    return moved;
  }
  for (size_t i = 0; i < busy_.size() && context_->failure.ok();) {
    const int rank = busy_[i];
    moved = PollPeer(rank) || moved;
    if (peer(rank).idle()) {
      peer(rank).busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

bool PairInbox::PollPeer(int rank) {
  Peer& from = peer(rank);
  bool moved = !from.verdicts.empty() && AnswerOn(rank);
  if (context_->failure.ok() && !from.taking.empty()) moved = TakeOn(rank) || moved;
  if (context_->failure.ok() && from.going) moved = ReceiveOn(rank) || moved;
  if (context_->failure.ok()) moved = ReadHeads(rank) || moved;
  return moved;
}

bool PairInbox::ReadHeads(int rank) {
  bool moved = false;
  while ((from_any_ > 0 || peer(rank).wanted > 0) && context_->failure.ok()) {
    Envelope envelope;
    const WireStep step = context_->wire->NextEnvelope(rank, &envelope);
    if (step == WireStep::kNone) break;
    moved = true;
    if (step == WireStep::kBroken) {
      context_->Fail(context_->wire->fault());
    } else {
      OnHead(rank, std::move(envelope));
    }
  }
  return moved;
}

void PairInbox::OnHead(int rank, Envelope&& envelope) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](int index) {
    const Transfer& transfer = context_->table[index].transfer;
    return transfer.tag == envelope.tag && (transfer.peer == rank || transfer.peer == kAnySource);
  });
  if (found == posted_.end()) {
    peer(rank).heads.push_back({heads_read_++, std::move(envelope)});
    return;
  }
  const int index = *found;
  posted_.erase(found);
  const bool any = context_->table[index].transfer.peer == kAnySource;
  --(any ? from_any_ : peer(rank).wanted);
  Match(index, rank, std::move(envelope));
}

void PairInbox::Match(int index, int rank, Envelope&& envelope) {
  MarkBusy(rank);
  OpenTransfer& entry = context_->table[index];
  entry.source = rank;
  entry.number = envelope.number;
  if (!Agree(index, rank, envelope)) return;
  const BodyStep step = Take(index, rank, envelope);
  if (step == BodyStep::kPart) {
    peer(rank).taking.push_back({index, std::move(envelope)});
  } else if (step == BodyStep::kAsk) {
    peer(rank).waiting.push_back({index, std::move(envelope)});
    GoOn(rank);
  }
}

// Before any byte is written: whether neither side refuses and both describe the same message.
bool PairInbox::Agree(int index, int rank, const Envelope& envelope) {
  OpenTransfer& entry = context_->table[index];
  const bool same =
      !envelope.refusal && !entry.refuses() && envelope.digest == entry.transfer.digest;
  if (same) return true;
  if (!envelope.refusal) context_->wire->DropBody(rank, envelope);
  if (entry.refuses()) {
    if (!envelope.refusal) {
      Answer(rank, {envelope.number, Verdict::kRefused, entry.refusal.message()});
    }
    context_->table.Free(index);
  } else if (envelope.refusal) {
    context_->table.Finish(index, RefusedBy(*context_->endpoint, entry.transfer, rank,
                                            envelope.number, envelope.tag, envelope.reason));
  } else {
    const std::string text =
        DescribeMismatch(*context_->endpoint, rank, context_->rank(), envelope, entry.transfer);
    Answer(rank, {envelope.number, Verdict::kMismatch, text});
    context_->Fail(Status(ERROR_RANK_MISMATCH, text));
  }
  return false;
}

BodyStep PairInbox::Take(int index, int rank, const Envelope& envelope) {
  OpenTransfer& entry = context_->table[index];
  const BodyStep step = context_->wire->TakeBody(rank, envelope, entry.transfer.data,
                                                 entry.transfer.bytes, &entry.moved);
  if (step == BodyStep::kTaken) FinishTaken(index, rank, envelope.number);
  if (step == BodyStep::kBroken) context_->Fail(context_->wire->fault());
  return step;
}

bool PairInbox::TakeOn(int rank) {
  Peer& from = peer(rank);
  bool moved = false;
  for (size_t i = 0; i < from.taking.size() && context_->failure.ok();) {
    const int64_t before = context_->table[from.taking[i].index].moved;
    const BodyStep step = Take(from.taking[i].index, rank, from.taking[i].envelope);
    moved =
        moved || step != BodyStep::kPart || context_->table[from.taking[i].index].moved != before;
    if (step == BodyStep::kPart) {
      ++i;
    } else {
      EraseAt(&from.taking, i);
    }
  }
  return moved;
}

void PairInbox::GoOn(int rank) {
  Peer& from = peer(rank);
  if (from.going || from.waiting.empty()) return;
  from.going = true;
  Answer(rank, {from.waiting.front().envelope.number, Verdict::kGo, {}});
}

bool PairInbox::ReceiveOn(int rank) {
  Peer& from = peer(rank);
  OpenTransfer& entry = context_->table[from.waiting.front().index];
  WireStep step = WireStep::kDone;
  if (entry.moved != entry.transfer.bytes) {
    step = context_->wire->RecvBody(rank, entry.transfer.data, entry.transfer.bytes, &entry.moved);
  }
  if (step == WireStep::kBroken) context_->Fail(context_->wire->fault());
  if (step != WireStep::kDone) return step == WireStep::kBroken;
  if (entry.moved == entry.transfer.bytes) {
    const Matched matched = std::move(from.waiting.front());
    EraseAt(&from.waiting, 0);
    from.going = false;
    FinishTaken(matched.index, rank, matched.envelope.number);
    GoOn(rank);
  }
  return true;
}

// If the group has failed, the transfer stays open, and the lane ends it.
void PairInbox::FinishTaken(int index, int rank, uint64_t number) {
  if (context_->FailedMeanwhile()) return;
  Answer(rank, {number, Verdict::kDone, {}});
  context_->table.Finish(index);
}

void PairInbox::Answer(int rank, Verdict&& verdict) {
  std::vector<Verdict>& verdicts = peer(rank).verdicts;
  if (verdicts.empty()) {
    const WireStep step = context_->wire->PostVerdict(rank, verdict);
    if (step == WireStep::kBroken) context_->Fail(context_->wire->fault());
    if (step != WireStep::kNone) return;
  }
  verdicts.push_back(std::move(verdict));
  ++backlog_;
  MarkBusy(rank);
}

bool PairInbox::AnswerOn(int rank) {
  std::vector<Verdict>& verdicts = peer(rank).verdicts;
  size_t posted = 0;
  WireStep step = WireStep::kDone;
  while (posted < verdicts.size()) {
    step = context_->wire->PostVerdict(rank, verdicts[posted]);
    if (step != WireStep::kDone) break;
    ++posted;
  }
  if (step == WireStep::kBroken) context_->Fail(context_->wire->fault());
  verdicts.erase(verdicts.begin(), verdicts.begin() + static_cast<std::ptrdiff_t>(posted));
  backlog_ -= static_cast<int>(posted);
  return posted > 0 || step == WireStep::kBroken;
}

void PairInbox::ForgetRefusals(int peer_rank) {
  for (size_t i = 0; i < posted_.size();) {
    const OpenTransfer& entry = context_->table[posted_[i]];
    if (!entry.refuses() || entry.transfer.peer != peer_rank) {
      ++i;
      continue;
    }
    --peer(peer_rank).wanted;
    context_->table.Free(posted_[i]);
    EraseAt(&posted_, i);
  }
  backlog_ -= static_cast<int>(peer(peer_rank).verdicts.size());
  peer(peer_rank).verdicts.clear();
}

std::string PairInbox::DescribeHeads(int peer_rank) {
  constexpr size_t kShown = 3;
  Envelope envelope;
  while (context_->wire->NextEnvelope(peer_rank, &envelope) == WireStep::kDone) {
    OnHead(peer_rank, std::move(envelope));
    envelope = {};
  }
  const std::vector<Head>& heads = peer(peer_rank).heads;
  std::string text;
  for (size_t i = 0; i < heads.size() && i < kShown; ++i) {
    text += Concat(i == 0 ? "" : ", ", heads[i].envelope.tag);
  }
  if (heads.size() > kShown) text += ", ...";
  return text.empty() ? text
                      : Concat(context_->endpoint->Who(peer_rank), " sends to ",
                               context_->endpoint->Who(context_->rank()), " with tag ", text);
}

}  // namespace collops

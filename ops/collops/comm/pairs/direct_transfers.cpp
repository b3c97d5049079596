#include "collops/comm/pairs/pair_lane.h"

#include <utility>

namespace collops {

bool DirectTransfers::Begin(const Transfer* list, int count) {
  if (count > kMost) return false;
  for (int i = 0; i < count; ++i) {
    const bool receives = list[i].way == Transfer::kRecv;
    if (receives && (list[i].peer == kAnySource || inbox_->HasHeads(list[i].peer))) return false;
    list_[i].transfer = &list[i];
    list_[i].state = State::kNew;
    list_[i].moved = 0;
    list_[i].behind = false;
    for (int j = 0; j < i && receives && !list_[i].behind; ++j) {
      list_[i].behind = list[j].way == Transfer::kRecv && list[j].peer == list[i].peer;
    }
  }
  count_ = open_ = count;
  stopped_ = false;
  odd_ = Odd::kNothing;
  for (int i = 0; i < count && !stopped_; ++i) {
    if (list[i].way == Transfer::kRecv) continue;
    const WireStep step = outbox_->PostDirect(list[i], &list_[i].number);
    if (step == WireStep::kDone) list_[i].state = State::kUnderWay;
    if (step == WireStep::kNone) Stop(Odd::kNothing, list[i].peer);
    if (step == WireStep::kBroken) Stop(Odd::kFault, list[i].peer);
  }
  return true;
}

// Heads first: a peer waits for the answer to them.
bool DirectTransfers::Poll() {
  bool moved = false;
  for (int i = 0; i < count_ && !stopped_; ++i) {
    if (list_[i].transfer->way == Transfer::kRecv) moved = PollReceive(&list_[i]) || moved;
  }
  for (int i = 0; i < count_ && !stopped_; ++i) {
    if (list_[i].transfer->way == Transfer::kSend) moved = PollSend(&list_[i]) || moved;
  }
  return moved || stopped_;
}

bool DirectTransfers::PollSend(Open* send) {
  if (send->state != State::kUnderWay) return false;
  const int rank = send->transfer->peer;
  const WireStep step = context_->wire->NextVerdict(rank, &verdict_);
  if (step == WireStep::kNone) return false;
  if (step == WireStep::kBroken) {
    Stop(Odd::kFault, rank);
    return true;
  }
  Open* judged = nullptr;
  for (int i = 0; i < count_ && judged == nullptr && verdict_.kind == Verdict::kDone; ++i) {
    Open& open = list_[i];
    const bool sent = open.state == State::kUnderWay && open.transfer->way == Transfer::kSend;
    if (sent && open.transfer->peer == rank && open.number == verdict_.number) judged = &open;
  }
  if (judged == nullptr) {
    Stop(Odd::kVerdict, rank);
  } else {
    Close(judged);
  }
  return true;
}

bool DirectTransfers::PollReceive(Open* receive) {
  if (receive->state == State::kUnderWay) {
    const int64_t before = receive->moved;
    Take(receive, receive->envelope);
    return receive->state != State::kUnderWay || receive->moved != before;
  }
  if (receive->state != State::kNew || !IsFirstOfItsSource(*receive)) return false;
  const int rank = receive->transfer->peer;
  const WireStep step = context_->wire->NextEnvelope(rank, &head_);
  if (step == WireStep::kNone) return false;
  if (step == WireStep::kBroken) {
    Stop(Odd::kFault, rank);
  } else {
    OnHead(receive);
  }
  return true;
}

bool DirectTransfers::IsFirstOfItsSource(const Open& receive) const {
  if (!receive.behind) return true;
  for (const Open* open = list_; open != &receive; ++open) {
    const Transfer& transfer = *open->transfer;
    if (transfer.way == Transfer::kRecv && transfer.peer == receive.transfer->peer &&
        open->state == State::kNew) {
      return false;
    }
  }
  return true;
}

void DirectTransfers::OnHead(Open* receive) {
  const Transfer& transfer = *receive->transfer;
  if (head_.refusal || head_.tag != transfer.tag || head_.digest != transfer.digest) {
    return Stop(Odd::kHead, transfer.peer);
  }
  receive->number = head_.number;
  Take(receive, head_);
}

void DirectTransfers::Take(Open* receive, const Envelope& envelope) {
  const Transfer& transfer = *receive->transfer;
  const BodyStep step = context_->wire->TakeBody(transfer.peer, envelope, transfer.data,
                                                 transfer.bytes, &receive->moved);
  switch (step) {
    case BodyStep::kTaken:
      if (context_->FailedMeanwhile()) {
        receive->state = State::kLeftOpen;
        return Stop(Odd::kNothing, transfer.peer);
      }
      Close(receive);
      inbox_->Answer(transfer.peer, {receive->number, Verdict::kDone, {}});
      if (inbox_->has_backlog() || !context_->failure.ok()) Stop(Odd::kNothing, transfer.peer);
      return;
    case BodyStep::kPart:
      if (receive->state == State::kNew) receive->envelope = envelope;
      receive->state = State::kUnderWay;
      return;
    case BodyStep::kAsk:
      return Stop(Odd::kHead, transfer.peer);
    case BodyStep::kBroken:
      return Stop(Odd::kFault, transfer.peer);
  }
}

void DirectTransfers::Close(Open* open) {
  open->state = State::kDone;
  --open_;
}

void DirectTransfers::Stop(Odd odd, int rank) {
  stopped_ = true;
  odd_ = odd;
  odd_rank_ = rank;
}

void DirectTransfers::HandOver(TransferHandle* handles) {
  for (int i = 0; i < count_; ++i) {
    const int index = context_->table.Add(*list_[i].transfer);
    handles[i] = context_->table.HandleOf(index);
    if (list_[i].transfer->way == Transfer::kSend) {
      HandOverSend(index, list_[i]);
    } else {
      HandOverReceive(index, &list_[i]);
    }
  }
  count_ = open_ = 0;
  switch (odd_) {
    case Odd::kNothing:
      return;
    case Odd::kHead:
      return inbox_->OnHead(odd_rank_, std::exchange(head_, {}));
    case Odd::kVerdict:
      return outbox_->OnVerdict(odd_rank_, verdict_);
    case Odd::kFault:
      return context_->Fail(context_->wire->fault());
  }
}

void DirectTransfers::HandOverSend(int index, const Open& send) {
  if (send.state == State::kNew) return outbox_->Add(index);
  if (send.state == State::kDone) return context_->table.Finish(index);
  outbox_->AddPosted(index, send.number);
}

void DirectTransfers::HandOverReceive(int index, Open* receive) {
  if (receive->state == State::kNew) return inbox_->Add(index);
  OpenTransfer& entry = context_->table[index];
  entry.source = receive->transfer->peer;
  entry.number = receive->number;
  entry.moved = receive->moved;
  if (receive->state == State::kDone) context_->table.Finish(index);
  if (receive->state == State::kUnderWay) {
    inbox_->AddTaking(index, std::exchange(receive->envelope, {}));
  }
}

}  // namespace collops

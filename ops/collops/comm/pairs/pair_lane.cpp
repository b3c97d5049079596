#include "collops/comm/pairs/pair_lane.h"

#include <cstring>
#include <utility>

namespace collops {

// A free entry has an Ok outcome and an Ok refusal, so Add() need not reset them.
int TransferTable::Add(const Transfer& transfer) {
  if (free_.empty()) {
    free_.push_back(size());
    entries_.push_back(std::make_unique<OpenTransfer>());
  }
  const int index = free_.back();
  free_.pop_back();
  OpenTransfer& entry = (*this)[index];
  entry.transfer = transfer;
  entry.number = 0;
  entry.moved = 0;
  entry.source = -1;
  entry.used = true;
  entry.done = false;
  ++under_way_;
  return index;
}

int TransferTable::AddRefusal(const Transfer& transfer, const Status& why) {
  const int index = Add(transfer);
  (*this)[index].refusal = why;
  return index;
}

void TransferTable::Finish(int index) {
  OpenTransfer& entry = (*this)[index];
  if (!entry.under_way()) return;
  entry.done = true;
  --under_way_;
}

void TransferTable::Finish(int index, Status outcome) {
  OpenTransfer& entry = (*this)[index];
  if (entry.under_way()) entry.outcome = std::move(outcome);
  Finish(index);
}

void TransferTable::Free(int index) {
  OpenTransfer& entry = (*this)[index];
  if (entry.under_way()) --under_way_;
  entry.used = false;
  if (!entry.outcome.ok()) entry.outcome = Ok();
  if (!entry.refusal.ok()) entry.refusal = Ok();
  ++entry.generation;
  free_.push_back(index);
}

TransferHandle TransferTable::HandleOf(int index) const {
  return {static_cast<uint32_t>(index), (*this)[index].generation};
}

int TransferTable::Find(TransferHandle handle) const {
  if (handle.index >= entries_.size()) return -1;
  const OpenTransfer& entry = *entries_[handle.index];
  const bool known = entry.used && entry.generation == handle.generation;
  return known ? static_cast<int>(handle.index) : -1;
}

namespace {

// A peer's text may lack an end.
template <size_t kBytes>
std::string TypeName(const char (&type)[kBytes], DType dtype) {
  const std::string name(type, strnlen(type, kBytes));
  return name.empty() ? Name(dtype) : name;
}

}  // namespace

const char* WordOf(const Transfer& transfer) {
  const bool sends = transfer.way == Transfer::kSend;
  if (transfer.method == nullptr) return sends ? "Send" : "Recv";
  return sends ? "send" : "recv";
}

const char* CallOf(const Transfer& transfer) {
  return transfer.method == nullptr ? WordOf(transfer) : transfer.method;
}

std::string DescribeMismatch(const control::Endpoint& group, int sender, int receiver,
                             const Envelope& envelope, const Transfer& receive) {
  const char* const calls = receive.method == nullptr ? "Send and Recv" : "send and recv";
  return Concat(calls, ": message ", envelope.number, " (tag ", envelope.tag,
                "): ", group.Who(sender), " sends ", envelope.elements, " ",
                TypeName(envelope.type, envelope.dtype), ", ", group.Who(receiver), " receives ",
                receive.elements, " ", TypeName(receive.type, receive.dtype),
                ": both must state the same dtype and number of elements");
}

Status RefusedBy(const control::Endpoint& group, const Transfer& transfer, int refuser,
                 uint64_t number, int32_t tag, const std::string& reason) {
  return Error(ERROR_RANK_MISMATCH, CallOf(transfer), ": ", group.Who(refuser), " refused message ",
               number, " (tag ", tag,
               "): ", reason.empty() ? "its reason was overwritten by later ones" : reason);
}

std::string DescribeOpen(const control::Endpoint& group, const OpenTransfer& open) {
  const Transfer& transfer = open.transfer;
  const std::string what = Concat(WordOf(transfer), " of ", transfer.elements, " ",
                                  TypeName(transfer.type, transfer.dtype));
  const std::string tag = Concat(" (tag ", transfer.tag, ")");
  if (open.moved > 0) {
    return Concat(what, transfer.way == Transfer::kSend ? " to " : " from ",
                  group.Who(transfer.way == Transfer::kSend ? transfer.peer : open.source), tag,
                  " stopped after ", open.moved, " of ", transfer.bytes, " bytes");
  }
  if (transfer.way == Transfer::kSend) {
    return Concat(what, " to ", group.Who(transfer.peer), tag,
                  ": its receiver has not received it");
  }
  if (transfer.peer == kAnySource) {
    return Concat(what, " from any rank", tag, ": no rank has sent such a message");
  }
  return Concat(what, " from ", group.Who(transfer.peer), tag, ": no such message has arrived");
}

PairLane::PairLane(PairWire* wire, control::Endpoint* endpoint)
    : context_{wire, endpoint, {}, Ok()},
      outbox_(&context_),
      inbox_(&context_),
      direct_(&context_, &outbox_, &inbox_),
      gone_(static_cast<size_t>(endpoint->size())) {}

TransferHandle PairLane::Post(const Transfer& transfer) {
  const int index = context_.table.Add(transfer);
  const TransferHandle handle = context_.table.HandleOf(index);
  if (!context_.failure.ok()) {
    context_.table.Finish(index, context_.failure);
  } else if (transfer.way == Transfer::kSend) {
    outbox_.Add(index);
  } else {
    inbox_.Add(index);
  }
  UpdateWork();
  return handle;
}

bool PairLane::BeginDirect(const Transfer* list, int count) {
  const bool idle = !HasWork() && context_.failure.ok() && num_gone_ == 0;
  return idle && context_.wire->IsDirect() && !context_.GroupHasFailed() &&
         direct_.Begin(list, count);
}

void PairLane::HandOverDirect(TransferHandle* handles) {
  direct_.HandOver(handles);
  UpdateWork();
}

void PairLane::Refuse(const Transfer& transfer, const Status& why) {
  if (transfer.peer < 0 || transfer.peer >= context_.rank_size()) return;
  if (!context_.failure.ok()) return;
  Transfer refused = transfer;
  refused.data = nullptr;
  refused.bytes = 0;
  const int index = context_.table.AddRefusal(refused, why);
  if (transfer.way == Transfer::kSend) {
    outbox_.Add(index);
  } else {
    inbox_.Add(index);
  }
  UpdateWork();
  Poll();
}

bool PairLane::Poll() {
  if (!HasWork()) return false;
  const bool moved = context_.failure.ok() && Move();
  if (!context_.failure.ok()) FinishAll();
  UpdateWork();
  return moved;
}

bool PairLane::Move() {
  context_.wire->Progress();
  bool moved = outbox_.Poll();
  if (context_.failure.ok()) moved = inbox_.Poll() || moved;
  if (context_.failure.ok() && context_.GroupHasFailed()) {
    // A message whose verdict came before the group failed has its outcome.
    outbox_.ReadVerdicts();
    if (context_.failure.ok()) {
      context_.Fail(context_.endpoint->GroupFailure());
      return true;
    }
  }
  if (context_.failure.ok() && !moved && num_gone_ > 0) FailLost();
  if (context_.failure.ok()) return moved;
  found_failure_ = true;
  return true;
}

bool PairLane::Done(TransferHandle handle) const {
  const int index = context_.table.Find(handle);
  return index < 0 || context_.table[index].done;
}

Status PairLane::Collect(TransferHandle handle, int* source) {
  const int index = context_.table.Find(handle);
  COLLOPS_CHECK_ARG(index >= 0 && context_.table[index].done, ERROR_INVALID_PARAM,
                    "a transfer that is not done, or was collected, has no outcome");
  OpenTransfer& open = context_.table[index];
  if (source != nullptr) *source = open.source;
  Status outcome;
  if (!open.outcome.ok()) outcome = open.outcome;
  context_.table.Free(index);
  return outcome;
}

void PairLane::Lose(int peer, Departure departure, const Status& why) {
  Gone& gone = gone_[static_cast<size_t>(peer)];
  if (gone.gone && gone.departure == departure) return;
  if (!gone.gone) ++num_gone_;
  gone = {true, departure, why};
  outbox_.ForgetRefusals(peer);
  UpdateWork();
}

bool PairLane::WaitsFor(int peer) const {
  for (int i = 0; i < context_.table.size(); ++i) {
    const OpenTransfer& open = context_.table[i];
    if (!open.under_way() || open.refuses()) continue;
    const int source = open.source < 0 ? open.transfer.peer : open.source;
    if (source == peer || (source == kAnySource && peer != context_.rank())) return true;
  }
  return false;
}

// The first loss that a transfer cannot survive; null if there is none.
const Status* PairLane::LossOf(const OpenTransfer& open) const {
  const int needed = open.source < 0 ? open.transfer.peer : open.source;
  if (needed != kAnySource) {
    const Gone& gone = gone_[static_cast<size_t>(needed)];
    return gone.gone ? &gone.why : nullptr;
  }
  const Status* last = nullptr;
  for (const Gone& gone : gone_) {
    if (!gone.gone) continue;
    if (gone.departure == Departure::kEnded) return &gone.why;
    last = &gone.why;
  }
  return num_gone_ >= context_.rank_size() - 1 ? last : nullptr;
}

// Whether a rank that is gone may have sent this transfer something that is still under way.
bool PairLane::SomethingMayArrive(const OpenTransfer& open) const {
  const int needed = open.source < 0 ? open.transfer.peer : open.source;
  if (needed != kAnySource) return context_.wire->MayArrive(needed);
  for (int rank = 0; rank < context_.rank_size(); ++rank) {
    if (gone_[static_cast<size_t>(rank)].gone && context_.wire->MayArrive(rank)) return true;
  }
  return false;
}

// Nothing has moved since the loss was reported, so nothing of that peer is left to read.
void PairLane::FailLost() {
  for (int rank = 0; rank < context_.rank_size(); ++rank) {
    if (gone_[static_cast<size_t>(rank)].gone) inbox_.ForgetRefusals(rank);
  }
  for (int i = 0; i < context_.table.size(); ++i) {
    const OpenTransfer& open = context_.table[i];
    if (!open.under_way() || open.refuses()) continue;
    const Status* loss = LossOf(open);
    if (loss == nullptr) continue;
    if (SomethingMayArrive(open)) return;
    context_.Fail(Error(loss->code(), CallOf(open.transfer), ": ", loss->message()));
    return;
  }
}

void PairLane::End(const Status& why) {
  context_.Fail(why);
  FinishAll();
  UpdateWork();
}

void PairLane::FinishAll() {
  context_.wire->Abandon();
  for (int i = 0; i < context_.table.size(); ++i) {
    const OpenTransfer& open = context_.table[i];
    if (!open.under_way()) continue;
    if (open.refuses()) {
      context_.table.Free(i);
    } else {
      context_.table.Finish(i, context_.failure);
    }
  }
}

void PairLane::UpdateWork() {
  const bool ended = !context_.failure.ok();
  const bool owes = !ended && (inbox_.has_backlog() || !context_.wire->HandedOver());
  if (owes != OwesVerdicts()) owes_verdicts_.store(owes, std::memory_order_relaxed);
  const bool work = context_.table.under_way() > 0 || owes;
  if (work != HasWork()) has_work_.store(work, std::memory_order_relaxed);
}

std::string PairLane::Describe() {
  constexpr int kShown = 3;
  std::string text;
  int shown = 0;
  context_.wire->Progress();
  const int under_way = context_.table.under_way();
  for (int i = 0; i < context_.table.size() && shown < kShown; ++i) {
    const OpenTransfer& open = context_.table[i];
    if (!open.under_way() || open.refuses()) continue;
    text += (shown++ == 0 ? "" : "; ") + DescribeOpen(*context_.endpoint, open);
    const int peer = open.transfer.peer;
    if (peer == kAnySource || peer == context_.rank()) continue;
    const std::string heads = inbox_.DescribeHeads(peer);
    if (heads.empty()) continue;
    text += "; " + heads;
    if (open.transfer.way == Transfer::kSend) {
      text += ": two ranks that both send first wait for each other, exchange does not";
    }
  }
  if (under_way > shown) text += Concat("; and ", under_way - shown, " more");
  return text;
}

}  // namespace collops

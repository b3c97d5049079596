#include "collops/comm/pairs/pair_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace collops {
namespace {

template <typename T>
void EraseAt(std::vector<T>* list, size_t index) {
  list->erase(list->begin() + static_cast<std::ptrdiff_t>(index));
}

// The texts of errors between two ranks; both ranks get the same text.

// A peer's text may lack an end.
template <size_t kBytes>
std::string TypeName(const char (&type)[kBytes], DType dtype) {
  const std::string name(type, strnlen(type, kBytes));
  return name.empty() ? Name(dtype) : name;
}

// The call that asks for it: the plain level's method, or "Send" or "Recv".
const char* CallOf(const Transfer& transfer) {
  return transfer.method == nullptr ? WordOf(transfer) : transfer.method;
}

// The first field in which sender and receiver of a message differ: both ranks, both values.
std::string DescribeMismatch(const control::Endpoint& group, int sender, const Envelope& envelope,
                             const Transfer& receive) {
  const char* const calls = receive.method == nullptr ? "Send and Recv" : "send and recv";
  const MessageHead& head = envelope.head;
  return Concat(calls, ": message ", envelope.number, " (tag ", head.tag, "): ", group.Who(sender),
                " sends ", head.elements, " ", TypeName(head.type, static_cast<DType>(head.dtype)),
                ", ", group.Who(group.rank()), " receives ", receive.elements, " ",
                TypeName(receive.type, receive.dtype),
                ": both must state the same dtype and number of elements");
}

// `refuser` takes part in the message with a refusal; for the other rank, whose transfer it is.
Status RefusedBy(const control::Endpoint& group, const OpenTransfer& open, int refuser, int32_t tag,
                 const std::string& reason) {
  return Error(ERROR_RANK_MISMATCH, CallOf(open.transfer), ": ", group.Who(refuser),
               " refused message ", open.number, " (tag ", tag,
               "): ", reason.empty() ? "its reason was overwritten by later ones" : reason);
}

// A transfer that has not ended, for the message of a time-out.
std::string DescribeOpen(const control::Endpoint& group, const OpenTransfer& open) {
  const Transfer& transfer = open.transfer;
  const bool sends = transfer.way == Transfer::kSend;
  const std::string what = Concat(WordOf(transfer), " of ", transfer.elements, " ",
                                  TypeName(transfer.type, transfer.dtype));
  const std::string tag = Concat(" (tag ", transfer.tag, ")");
  if (open.moved > 0) {
    return Concat(what, sends ? " to " : " from ", group.Who(open.needed()), tag, " stopped after ",
                  open.moved, " of ", transfer.bytes, " bytes");
  }
  if (sends) {
    return Concat(what, " to ", group.Who(transfer.peer), tag,
                  ": its receiver has not received it");
  }
  if (transfer.peer == kAnySource) {
    return Concat(what, " from any rank", tag, ": no rank has sent such a message");
  }
  return Concat(what, " from ", group.Who(transfer.peer), tag, ": no such message has arrived");
}

}  // namespace

const char* WordOf(const Transfer& transfer) {
  const bool sends = transfer.way == Transfer::kSend;
  if (transfer.method == nullptr) return sends ? "Send" : "Recv";
  return sends ? "send" : "recv";
}

PairLane::PairLane(PairWires wires, control::Endpoint* endpoint)
    : remote_(wires.remote), endpoint_(endpoint), peers_(wires.routes.size()) {
  for (size_t rank = 0; rank < peers_.size(); ++rank) peers_[rank].route = wires.routes[rank];
}

// One function once compiled, as Poll() is.
[[gnu::flatten]] void PairLane::Post(OpenTransfer* open) {
  open->done = !failure_.ok();
  open->source = -1;
  open->number = 0;
  open->moved = 0;
  if (!open->outcome.ok() || open->done) open->outcome = failure_;
  if (!open->done) Begin(open);
}

void PairLane::Refuse(const Transfer& transfer, const Status& why) {
  if (transfer.peer < 0 || transfer.peer >= rank_size() || !failure_.ok()) return;
  OpenTransfer& refused = refusals_.emplace_back();
  refused.transfer = transfer;
  refused.transfer.data = nullptr;
  refused.transfer.bytes = 0;
  refused.refusal = why;
  refused.done = false;
  Begin(&refused);
  Poll();
}

void PairLane::Begin(OpenTransfer* open) {
  open->next = nullptr;
  open->previous = last_open_;
  (last_open_ == nullptr ? first_open_ : last_open_->next) = open;
  last_open_ = open;
  ++num_open_;
  if (open->transfer.way == Transfer::kRecv) {
    AddReceive(open);
  } else {
    std::vector<OpenTransfer*>& queue = at(open->transfer.peer).queue;
    MarkBusy(open->transfer.peer);
    if (!queue.empty() || PostOne(open) == WireStep::kNone) queue.push_back(open);
  }
  UpdateWork();
}

void PairLane::Finish(OpenTransfer* open) {
  (open->previous == nullptr ? first_open_ : open->previous->next) = open->next;
  (open->next == nullptr ? last_open_ : open->next->previous) = open->previous;
  --num_open_;
  open->done = true;
  if (!open->refuses()) return;
  refusals_.remove_if([open](const OpenTransfer& refused) { return &refused == open; });
}

void PairLane::Finish(OpenTransfer* open, Status outcome) {
  open->outcome = std::move(outcome);
  Finish(open);
}

void PairLane::FinishAll() {
  if (remote_ != nullptr) remote_->Abandon();
  while (first_open_ != nullptr) Finish(first_open_, failure_);
}

void PairLane::Fail(Status why) {
  if (failure_.ok()) failure_ = std::move(why);
}

void PairLane::End(const Status& why) {
  Fail(why);
  FinishAll();
  UpdateWork();
}

// One function once compiled: the calls inside take a tenth of a short message's time.
[[gnu::flatten]] bool PairLane::Poll() {
  if (!HasWork()) return false;
  const bool moved = !failure_.ok() || Move();
  if (!failure_.ok()) FinishAll();
  UpdateWork();
  return moved;
}

bool PairLane::Move() {
  if (remote_ != nullptr) remote_->Progress();
  bool moved = false;
  if (from_any_ > 0) {
    first_rank_ = (first_rank_ + 1) % rank_size();
    for (int i = 0; i < rank_size() && failure_.ok(); ++i) {
      moved = PollPeer((first_rank_ + i) % rank_size()) || moved;
    }
  }
  for (size_t i = 0; i < busy_.size() && failure_.ok();) {
    const int rank = busy_[i];
    moved = PollPeer(rank) || moved;
    if (at(rank).idle()) {
      at(rank).busy = false;
      busy_[i] = busy_.back();
      busy_.pop_back();
    } else {
      ++i;
    }
  }
  if (failure_.ok() && endpoint_->GroupFailed(control::kAnyStep)) {
    // A message whose verdict came before the group failed has its outcome.
    for (const int rank : busy_) ReadVerdicts(rank);
    if (failure_.ok()) Fail(endpoint_->GroupFailure());
  }
  if (failure_.ok() && !moved && num_gone_ > 0) FailLost();
  return moved || !failure_.ok();
}

// Heads first: a peer waits for the answer to them.
bool PairLane::PollPeer(int rank) {
  PeerQueues& peer = at(rank);
  bool moved = !peer.verdicts.empty() && AnswerOn(rank);
  if (failure_.ok() && !peer.taking.empty()) moved = TakeOn(rank) || moved;
  if (failure_.ok() && peer.receiving) moved = ReceiveOn(rank) || moved;
  if (from_any_ > 0 || peer.wanted > 0) moved = ReadHeads(rank) || moved;
  if (!peer.sent.empty()) moved = ReadVerdicts(rank) || moved;
  if (failure_.ok() && !peer.queue.empty()) moved = PostQueued(rank) || moved;
  if (failure_.ok() && peer.sending != nullptr) moved = SendOn(rank) || moved;
  return moved;
}

WireStep PairLane::PostOne(OpenTransfer* open) {
  const Transfer& transfer = open->transfer;
  PeerQueues& to = at(transfer.peer);
  Envelope& envelope = sent_head_;
  envelope.number = to.last_number + 1;
  envelope.refusal = open->refuses();
  if (envelope.refusal) envelope.reason = open->refusal.message();
  envelope.head.digest = transfer.digest;
  envelope.head.elements = transfer.elements;
  envelope.head.tag = transfer.tag;
  envelope.head.dtype = static_cast<int16_t>(transfer.dtype);
  std::memcpy(envelope.head.type, transfer.type, sizeof(envelope.head.type));
  const WireStep step =
      to.route.wire->PostEnvelope(to.route.peer, envelope, transfer.data, transfer.bytes);
  if (step == WireStep::kBroken) Fail(to.route.wire->fault());
  if (step != WireStep::kDone) return step;
  open->number = ++to.last_number;
  if (envelope.refusal) {
    Finish(open);
  } else {
    to.sent.push_back(open);
  }
  return step;
}

bool PairLane::PostQueued(int rank) {
  std::vector<OpenTransfer*>& queue = at(rank).queue;
  size_t posted = 0;
  while (posted < queue.size() && failure_.ok() && PostOne(queue[posted]) != WireStep::kNone) {
    ++posted;
  }
  queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(posted));
  return posted > 0;
}

bool PairLane::ReadVerdicts(int rank) {
  PeerQueues& to = at(rank);
  bool moved = false;
  Verdict& verdict = verdict_;
  while (!to.sent.empty() && failure_.ok()) {
    const WireStep step = to.route.wire->NextVerdict(to.route.peer, &verdict);
    if (!Moved(rank, step)) break;
    moved = true;
    if (step == WireStep::kBroken || Judge(rank, verdict)) continue;
    Fail(Error(ERROR_PEER_LOST, "Send and Recv: ", endpoint_->Who(rank), " sent verdict ",
               verdict.kind, " on message ", verdict.number, ", which is not due"));
  }
  return moved;
}

// False for a verdict that no correct receiver gives.
bool PairLane::Judge(int rank, const Verdict& verdict) {
  PeerQueues& to = at(rank);
  const auto found = std::lower_bound(
      to.sent.begin(), to.sent.end(), verdict.number,
      [](const OpenTransfer* sent, uint64_t number) { return sent->number < number; });
  if (found == to.sent.end() || (*found)->number != verdict.number) return false;
  OpenTransfer* const open = *found;
  if (verdict.kind == Verdict::kGo) {
    if (to.sending != nullptr) return false;
    to.sending = open;
    return true;
  }
  if (to.sending == open) {
    if (verdict.kind != Verdict::kDone || open->moved != open->transfer.bytes) return false;
    to.sending = nullptr;
  }
  to.sent.erase(found);
  Close(rank, verdict, open);
  return true;
}

void PairLane::Close(int rank, const Verdict& verdict, OpenTransfer* sent) {
  switch (verdict.kind) {
    case Verdict::kGo:
    case Verdict::kDone:
      return Finish(sent);
    case Verdict::kMismatch:
      return Fail(Status(ERROR_RANK_MISMATCH, verdict.text));
    case Verdict::kRefused:
      return Finish(sent, RefusedBy(*endpoint_, *sent, rank, sent->transfer.tag, verdict.text));
  }
}

bool PairLane::SendOn(int rank) {
  const PairWires::Route& route = at(rank).route;
  OpenTransfer& open = *at(rank).sending;
  const Transfer& sent = open.transfer;
  return open.moved != sent.bytes &&
         Moved(rank, route.wire->SendBody(route.peer, sent.data, sent.bytes, &open.moved));
}

void PairLane::AddReceive(OpenTransfer* open) {
  int source = open->transfer.peer;
  const bool may_match = source == kAnySource || !at(source).heads.empty();
  Head* const head = may_match ? FindHead(open->transfer, &source) : nullptr;
  if (head != nullptr) {
    Envelope envelope = std::move(head->envelope);
    EraseAt(&at(source).heads, static_cast<size_t>(head - at(source).heads.data()));
    return Match(open, source, &envelope);
  }
  posted_.push_back(open);
  if (open->transfer.peer == kAnySource) {
    ++from_any_;
  } else {
    ++at(open->transfer.peer).wanted;
    MarkBusy(open->transfer.peer);
  }
}

// The first head with this tag from a given source; from any source, the one that was read first.
PairLane::Head* PairLane::FindHead(const Transfer& transfer, int* source) {
  const bool any = transfer.peer == kAnySource;
  Head* oldest = nullptr;
  for (int r = any ? 0 : transfer.peer; r < (any ? rank_size() : transfer.peer + 1); ++r) {
    for (Head& head : at(r).heads) {
      if (head.envelope.head.tag != transfer.tag) continue;
      if (oldest != nullptr && head.order >= oldest->order) break;
      oldest = &head;
      *source = r;
      break;
    }
  }
  return oldest;
}

bool PairLane::ReadHeads(int rank) {
  PeerQueues& from = at(rank);
  bool moved = false;
  while ((from_any_ > 0 || from.wanted > 0) && failure_.ok() &&
         Moved(rank, from.route.wire->NextEnvelope(from.route.peer, &read_head_))) {
    moved = true;
    if (failure_.ok()) OnHead(rank, &read_head_);
  }
  return moved;
}

void PairLane::OnHead(int rank, Envelope* envelope) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const OpenTransfer* open) {
    const Transfer& receive = open->transfer;
    return receive.tag == envelope->head.tag &&
           (receive.peer == rank || receive.peer == kAnySource);
  });
  if (found == posted_.end()) {
    at(rank).heads.push_back({heads_read_++, std::move(*envelope)});
    return;
  }
  OpenTransfer* const open = *found;
  posted_.erase(found);
  --(open->transfer.peer == kAnySource ? from_any_ : at(rank).wanted);
  Match(open, rank, envelope);
}

void PairLane::Match(OpenTransfer* open, int rank, Envelope* envelope) {
  MarkBusy(rank);
  open->source = rank;
  open->number = envelope->number;
  if (!Agree(open, rank, *envelope)) return;
  const BodyStep step = Take(open, rank, *envelope);
  if (step == BodyStep::kPart) {
    at(rank).taking.push_back({open, std::move(*envelope)});
  } else if (step == BodyStep::kAsk) {
    Ask(rank, {open, std::move(*envelope)});
  }
}

// The body is at its sender, which sends it when it is its turn.
void PairLane::Ask(int rank, Matched&& matched) {
  at(rank).waiting.push_back(std::move(matched));
  GoOn(rank);
}

// Before any byte is written: whether neither side refuses and both describe the same message.
bool PairLane::Agree(OpenTransfer* open, int rank, const Envelope& envelope) {
  const bool same =
      !envelope.refusal && !open->refuses() && envelope.head.digest == open->transfer.digest;
  if (same) return true;
  if (!envelope.refusal) at(rank).route.wire->DropBody(at(rank).route.peer, envelope);
  if (open->refuses()) {
    if (!envelope.refusal) {
      Answer(rank, {envelope.number, Verdict::kRefused, open->refusal.message()});
    }
    Finish(open);
  } else if (envelope.refusal) {
    Finish(open, RefusedBy(*endpoint_, *open, rank, envelope.head.tag, envelope.reason));
  } else {
    const std::string text = DescribeMismatch(*endpoint_, rank, envelope, open->transfer);
    Answer(rank, {envelope.number, Verdict::kMismatch, text});
    Fail(Status(ERROR_RANK_MISMATCH, text));
  }
  return false;
}

BodyStep PairLane::Take(OpenTransfer* open, int rank, const Envelope& envelope) {
  const PairWires::Route& route = at(rank).route;
  const BodyStep step = route.wire->TakeBody(route.peer, envelope, open->transfer.data,
                                             open->transfer.bytes, &open->moved);
  if (step == BodyStep::kTaken) FinishTaken(open, rank);
  if (step == BodyStep::kBroken) Fail(route.wire->fault());
  return step;
}

bool PairLane::TakeOn(int rank) {
  std::vector<Matched>& taking = at(rank).taking;
  bool moved = false;
  for (size_t i = 0; i < taking.size() && failure_.ok();) {
    const int64_t before = taking[i].open->moved;
    const BodyStep step = Take(taking[i].open, rank, taking[i].envelope);
    moved = moved || step != BodyStep::kPart || taking[i].open->moved != before;
    if (step == BodyStep::kPart) {
      ++i;
      continue;
    }
    // A later envelope has taken the slot of a body that was still being written.
    if (step == BodyStep::kAsk) Ask(rank, std::move(taking[i]));
    EraseAt(&taking, i);
  }
  return moved;
}

void PairLane::GoOn(int rank) {
  PeerQueues& from = at(rank);
  if (from.receiving || from.waiting.empty()) return;
  from.receiving = true;
  Answer(rank, {from.waiting.front().envelope.number, Verdict::kGo, {}});
}

bool PairLane::ReceiveOn(int rank) {
  PeerQueues& from = at(rank);
  OpenTransfer* const open = from.waiting.front().open;
  const Transfer& receive = open->transfer;
  if (open->moved != receive.bytes) {
    const WireStep step =
        from.route.wire->RecvBody(from.route.peer, receive.data, receive.bytes, &open->moved);
    if (!Moved(rank, step)) return false;
  }
  if (failure_.ok() && open->moved == receive.bytes) {
    EraseAt(&from.waiting, 0);
    from.receiving = false;
    FinishTaken(open, rank);
    GoOn(rank);
  }
  return true;
}

// After the last read of the sender's memory: a sender that has given up publishes that before it
// writes its memory again. If the group has failed, the transfer stays open, and the lane ends it.
void PairLane::FinishTaken(OpenTransfer* open, int rank) {
  if (!endpoint_->GroupFailureMeanwhile(control::kAnyStep).ok()) return;
  Answer(rank, {open->number, Verdict::kDone, {}});
  Finish(open);
}

// Posts a verdict, now or when there is room for it.
void PairLane::Answer(int rank, Verdict&& verdict) {
  PeerQueues& from = at(rank);
  if (from.verdicts.empty() &&
      Moved(rank, from.route.wire->PostVerdict(from.route.peer, verdict))) {
    return;
  }
  from.verdicts.push_back(std::move(verdict));
  ++backlog_;
  MarkBusy(rank);
}

bool PairLane::AnswerOn(int rank) {
  PeerQueues& from = at(rank);
  bool moved = false;
  while (!from.verdicts.empty() && failure_.ok() &&
         Moved(rank, from.route.wire->PostVerdict(from.route.peer, from.verdicts.front()))) {
    moved = true;
    EraseAt(&from.verdicts, 0);
    --backlog_;
  }
  return moved;
}

void PairLane::Lose(int rank, Departure departure, const Status& why) {
  PeerQueues& peer = at(rank);
  if (!failure_.ok() || (peer.gone && peer.departure == departure)) return;
  if (!peer.gone) ++num_gone_;
  peer.gone = true;
  peer.departure = departure;
  peer.loss = why;
  ForgetSends(rank);
  UpdateWork();
}

bool PairLane::WaitsFor(int peer) const {
  for (const OpenTransfer* open = first_open_; open != nullptr; open = open->next) {
    if (open->refuses()) continue;
    const int needed = open->needed();
    if (needed == peer || (needed == kAnySource && peer != endpoint_->rank())) return true;
  }
  return false;
}

// Drops the refusals that a peer will never read.
void PairLane::ForgetSends(int rank) {
  std::vector<OpenTransfer*>& queue = at(rank).queue;
  const auto refusals = std::stable_partition(
      queue.begin(), queue.end(), [](const OpenTransfer* open) { return !open->refuses(); });
  std::for_each(refusals, queue.end(), [this](OpenTransfer* open) { Finish(open); });
  queue.erase(refusals, queue.end());
}

// Drops the refusals that no message of a peer will match, and the verdicts that it will not read.
void PairLane::ForgetReceives(int rank) {
  const auto refusals = std::stable_partition(
      posted_.begin(), posted_.end(),
      [rank](const OpenTransfer* open) { return !open->refuses() || open->transfer.peer != rank; });
  at(rank).wanted -= static_cast<int>(posted_.end() - refusals);
  std::for_each(refusals, posted_.end(), [this](OpenTransfer* open) { Finish(open); });
  posted_.erase(refusals, posted_.end());
  backlog_ -= static_cast<int>(at(rank).verdicts.size());
  at(rank).verdicts.clear();
}

// The first loss that a transfer cannot survive; null if there is none.
const Status* PairLane::LossOf(const OpenTransfer& open) const {
  if (open.needed() != kAnySource) {
    const PeerQueues& peer = at(open.needed());
    return peer.gone ? &peer.loss : nullptr;
  }
  const Status* last = nullptr;
  for (const PeerQueues& peer : peers_) {
    if (!peer.gone) continue;
    if (peer.departure == Departure::kEnded) return &peer.loss;
    last = &peer.loss;
  }
  return num_gone_ >= rank_size() - 1 ? last : nullptr;
}

// Whether a rank that is gone may have sent this transfer something that is still under way.
bool PairLane::SomethingMayArrive(const OpenTransfer& open) const {
  const auto may_arrive = [](const PeerQueues& peer) {
    return peer.gone && peer.route.wire->MayArrive(peer.route.peer);
  };
  return open.needed() == kAnySource ? std::any_of(peers_.begin(), peers_.end(), may_arrive)
                                     : may_arrive(at(open.needed()));
}

// Nothing has moved since the loss was reported, so nothing of that peer is left to read.
void PairLane::FailLost() {
  for (int rank = 0; rank < rank_size(); ++rank) {
    if (at(rank).gone) ForgetReceives(rank);
  }
  for (const OpenTransfer* open = first_open_; open != nullptr; open = open->next) {
    const Status* const loss = open->refuses() ? nullptr : LossOf(*open);
    if (loss == nullptr) continue;
    if (SomethingMayArrive(*open)) return;
    return Fail(Error(loss->code(), CallOf(open->transfer), ": ", loss->message()));
  }
}

std::string PairLane::Describe() {
  constexpr int kShown = 3;
  if (remote_ != nullptr) remote_->Progress();
  // Reading heads may end transfers.
  std::vector<const OpenTransfer*> shown;
  const int under_way = num_open_;
  for (const OpenTransfer* open = first_open_; open != nullptr; open = open->next) {
    if (!open->refuses() && shown.size() < kShown) shown.push_back(open);
  }
  std::string text;
  for (const OpenTransfer* open : shown) {
    text += (text.empty() ? "" : "; ") + DescribeOpen(*endpoint_, *open);
    const int peer = open->transfer.peer;
    if (peer == kAnySource || peer == endpoint_->rank()) continue;
    const std::string heads = DescribeHeads(peer);
    if (heads.empty()) continue;
    text += "; " + heads;
    if (open->transfer.way == Transfer::kSend) {
      text += ": two ranks that both send first wait for each other, exchange does not";
    }
  }
  const int more = under_way - static_cast<int>(shown.size());
  return more > 0 ? text + Concat("; and ", more, " more") : text;
}

// Reads the heads that a peer has posted, and describes those that match no receive.
std::string PairLane::DescribeHeads(int rank) {
  constexpr size_t kShown = 3;
  const PairWires::Route& route = at(rank).route;
  while (route.wire->NextEnvelope(route.peer, &read_head_) == WireStep::kDone) {
    OnHead(rank, &read_head_);
  }
  const std::vector<Head>& heads = at(rank).heads;
  if (heads.empty()) return "";
  std::string tags;
  for (size_t i = 0; i < heads.size() && i < kShown; ++i) {
    tags += Concat(i == 0 ? "" : ", ", heads[i].envelope.head.tag);
  }
  if (heads.size() > kShown) tags += ", ...";
  return Concat(endpoint_->Who(rank), " sends to ", endpoint_->Who(endpoint_->rank()), " with tag ",
                tags);
}

}  // namespace collops

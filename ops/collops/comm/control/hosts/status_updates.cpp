#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/core/fence.h"

namespace collops::control {
namespace {

// How long the state of a carried step must stay as it is to be sent.
constexpr int64_t kStayMs = 20;

// The parts of a Group that an Endpoint needs to read and write the board without waiting.
std::shared_ptr<Group> Outline(const Group& group) {
  auto outline = std::make_shared<Group>();
  outline->segment = group.segment;
  outline->host = group.host;
  for (const Peer& peer : group.peers) {
    outline->peers.emplace_back();
    outline->peers.back().host = peer.host;
  }
  return outline;
}

// Changes with the contents of a board, so that hosts with different versions refuse each other.
constexpr uint64_t kUpdateMagic = 0x6e657736 + (Agreement::kMaxWords << 16) + kShareBytes;

size_t AgreementBytes(int rank_size) {
  return static_cast<size_t>(Agreement::EncodedBytes(rank_size));
}

}  // namespace

Frame Encode(const StatusUpdate& update, int rank_size) {
  FieldWriter fields;
  fields.Number(kUpdateMagic).Number(static_cast<uint64_t>(update.kind));
  fields.Number(static_cast<uint64_t>(update.rank)).Number(static_cast<uint64_t>(update.code));
  fields.Number(update.step).Number(update.digest).Number(update.balance);
  fields.Text(update.text.substr(0, kReasonBytes - 1));
  fields.Bytes(update.agreement, AgreementBytes(rank_size));
  fields.Bytes(update.shared, static_cast<size_t>(kShareBytes));
  return fields.frame();
}

bool Decode(const Frame& frame, int rank_size, StatusUpdate* update) {
  FieldReader fields(frame);
  if (fields.Number() != kUpdateMagic) return false;
  constexpr int kFirst = static_cast<int>(StatusKind::kHeartbeat);
  constexpr int kLast = static_cast<int>(StatusKind::kPair);
  *update = {};
  update->kind = static_cast<StatusKind>(fields.Int(kFirst, kLast));
  update->rank = fields.Int(0, rank_size - 1);
  update->code = static_cast<int32_t>(fields.Number());
  update->step = fields.Number();
  update->digest = fields.Number();
  update->balance = fields.Number();
  update->text = fields.Text(kReasonBytes - 1);
  update->agreement = fields.Bytes(AgreementBytes(rank_size));
  update->shared = fields.Bytes(static_cast<size_t>(kShareBytes));
  return fields.Done();
}

StatusSender::StatusSender(const Group* group, std::vector<int> ranks, int rank_size)
    : group_(group),
      board_(group->segment.data(), rank_size),
      ranks_(std::move(ranks)),
      rank_size_(rank_size),
      seen_(static_cast<size_t>(rank_size)),
      agreement_(static_cast<size_t>(Agreement::EncodedBytes(rank_size)) / sizeof(int64_t)) {
  for (const int rank : ranks_) Report(rank);
}

// A rank's last action is read first, for all ranks: whatever any rank did before it, which may
// have caused it, is then seen as well.
void StatusSender::Look(bool all) {
  all_ = all;
  now_ms_ = MonotonicMs();
  for (const int rank : ranks_) {
    const Peer& peer = group_->peers[static_cast<size_t>(rank)];
    Seen& seen = SeenOf(rank);
    seen.ended = seen.ended || (peer.lifeline.valid() && Readable(peer.lifeline.get()));
    seen.left = board_.member(rank).left.load(std::memory_order_acquire) != 0;
  }
  LookAtFailure();
  // What may have caused an end is sent before it.
  for (const int rank : reported_) {
    const Seen& seen = SeenOf(rank);
    all_ = all_ || seen.failed || seen.left || seen.ended;
  }
  for (const int rank : ranks_) LookAtFinished(rank);
  for (const int rank : ranks_) {
    for (const int parity : {0, 1}) LookAtHead(rank, parity);
  }
  // It may add to the list.
  for (size_t i = 0; i < reported_.size(); ++i) {
    const Seen& seen = SeenOf(reported_[i]);
    if (seen.failed) LookAtHeadsOf(seen.failed_step);
  }
  for (const int rank : ranks_) {
    SeenOf(rank).pair_marks = board_.member(rank).pair_marks.load(std::memory_order_acquire);
  }
}

void StatusSender::LookAtFailure() {
  const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
  if (failed == 0 || failed > static_cast<uint32_t>(rank_size_)) return;
  const int rank = static_cast<int>(failed) - 1;
  Report(rank);
  Seen& seen = SeenOf(rank);
  seen.failed = true;
  seen.failed_step = board_.member(rank).failed_step.load(std::memory_order_relaxed);
}

void StatusSender::LookAtHeadsOf(uint64_t failed_step) {
  const int parity = static_cast<int>(failed_step & 1);
  for (int rank = 0; rank < rank_size_; ++rank) {
    const SignalHead& head = board_.heads().At(rank, failed_step);
    const uint64_t word = head.step.load(std::memory_order_relaxed);
    if (HostOf(rank) == group_->host || NumberOf(word) != failed_step) continue;
    Report(rank);
    LookAtHead(rank, parity);
  }
}

void StatusSender::Report(int rank) {
  if (!std::exchange(SeenOf(rank).is_reported, true)) reported_.push_back(rank);
}

bool StatusSender::HasStayed(uint64_t value, Fresh* fresh) const {
  if (fresh->value != value) *fresh = {value, now_ms_};
  return now_ms_ - fresh->since_ms >= kStayMs;
}

void StatusSender::LookAtFinished(int rank) {
  Seen& seen = SeenOf(rank);
  const uint64_t finished = board_.member(rank).finished.load(std::memory_order_acquire);
  if (HasStayed(finished, &seen.fresh_finished) || all_) seen.finished = finished;
}

bool StatusSender::IsWanted(uint64_t word, Seen* seen, Fresh* fresh) const {
  if (KindOf(word) == HeadKind::kChanging) return false;
  if (all_ || KindOf(word) != HeadKind::kCarried) return true;
  return HasStayed(word, fresh) && NumberOf(word) > seen->fresh_finished.value;
}

void StatusSender::LookAtHead(int rank, int parity) {
  Seen& seen = SeenOf(rank);
  const SignalHead& head = board_.heads().At(rank, static_cast<uint64_t>(parity));
  const uint64_t word = head.step.load(std::memory_order_acquire);
  if (word == seen.heads[parity] || !IsWanted(word, &seen, &seen.fresh_heads[parity])) return;
  StatusUpdate update{StatusKind::kHead, rank, word};
  if (!ReadHead(rank, word, &update)) return;
  seen.frames[parity] = Encode(update, rank_size_);
  seen.heads[parity] = word;
}

// The rank of a carried head may be two steps further at any moment, and overwrite it: then all
// ranks had gone on, and nobody needs it. The others are needed by all ranks to go on.
bool StatusSender::ReadHead(int rank, uint64_t word, StatusUpdate* update) {
  const uint64_t step = NumberOf(word);
  if (IsRefusal(word)) {
    update->text = ReadReason(board_.refusal_reason(rank, step));
    return true;
  }
  const SignalHead& head = board_.heads().At(rank, step);
  update->digest = head.digest.load(std::memory_order_relaxed);
  update->balance = head.balance.load(std::memory_order_relaxed);
  LoadWords(board_.agreement(rank, step), agreement_.size(), agreement_.data());
  update->agreement = reinterpret_cast<const std::byte*>(agreement_.data());
  Fence(std::memory_order_acquire);
  if (head.step.load(std::memory_order_relaxed) != word) return false;
  // A step that has failed shares nothing, nor does a carried one.
  if (HostOf(rank) != group_->host || KindOf(word) == HeadKind::kCarried) return true;
  std::vector<std::byte>& last = SeenOf(rank).shared[step & 1];
  const std::byte* const shared = board_.shared(rank, step);
  last.resize(static_cast<size_t>(kShareBytes));
  if (std::memcmp(last.data(), shared, last.size()) == 0) return true;
  std::memcpy(last.data(), shared, last.size());
  update->shared = last.data();
  return true;
}

bool StatusSender::SendTo(int host, Bridge* bridge) {
  if (sent_.size() <= static_cast<size_t>(host)) sent_.resize(static_cast<size_t>(host) + 1);
  std::vector<Sent>& all = sent_[static_cast<size_t>(host)];
  all.resize(reported_.size());
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!SendPairs(ranks_[i], &all[i], host, bridge)) return false;
  }
  // One kind after the other, each for all ranks: the cause (a head, another rank's failure) is
  // sent before the failure or departure that it caused.
  for (const StatusKind kind : {StatusKind::kHead, StatusKind::kFinished, StatusKind::kFailed,
                                StatusKind::kLeft, StatusKind::kEnded}) {
    for (size_t i = 0; i < reported_.size(); ++i) {
      const int rank = reported_[i];
      if (HostOf(rank) == host) continue;
      Sent& sent = all[i];
      const bool is_sent = kind == StatusKind::kHead ? SendHeads(rank, &sent, host, bridge)
                                                     : SendState(kind, rank, &sent, host, bridge);
      if (!is_sent) return false;
    }
  }
  return true;
}

bool StatusSender::HasEnded(int rank) const {
  return SeenOf(rank).ended;
}

bool StatusSender::SendHeads(int rank, Sent* sent, int host, Bridge* bridge) const {
  const Seen& seen = SeenOf(rank);
  const int first = seen.heads[0] <= seen.heads[1] ? 0 : 1;
  for (const int parity : {first, 1 - first}) {
    if (sent->heads[parity] == seen.heads[parity]) continue;
    if (!bridge->Tell(host, seen.frames[parity])) return false;
    sent->heads[parity] = seen.heads[parity];
  }
  return true;
}

uint64_t StatusSender::StateOf(StatusKind kind, int rank) const {
  const Seen& seen = SeenOf(rank);
  if (kind == StatusKind::kFinished) return seen.finished;
  if (kind == StatusKind::kFailed) return seen.failed ? seen.failed_step + 1 : 0;
  return kind == StatusKind::kLeft ? seen.left : seen.ended;
}

bool StatusSender::SendState(StatusKind kind, int rank, Sent* sent, int host,
                             Bridge* bridge) const {
  const uint64_t state = StateOf(kind, rank);
  uint64_t& known = sent->states[static_cast<size_t>(kind)];
  if (known == state) return true;
  const Member& member = board_.member(rank);
  StatusUpdate update{kind, rank};
  if (kind == StatusKind::kFinished) update.step = state;
  if (kind == StatusKind::kFailed) update.step = SeenOf(rank).failed_step;
  if (kind == StatusKind::kLeft) {
    update.step = member.left_after.load(std::memory_order_relaxed);
    update.digest = member.left.load(std::memory_order_relaxed);
  }
  if (kind == StatusKind::kFailed || kind == StatusKind::kLeft) {
    update.code = member.code;
    update.text = ReadReason(member.reason);
  }
  if (!bridge->Tell(host, Encode(update, rank_size_))) return false;
  known = state;
  return true;
}

// All marks for the host's ranks, again with each new one: there are few.
bool StatusSender::SendPairs(int rank, Sent* sent, int host, Bridge* bridge) const {
  const uint64_t marks = SeenOf(rank).pair_marks;
  uint64_t& known = sent->states[static_cast<size_t>(StatusKind::kPair)];
  if (known == marks) return true;
  for (int peer = 0; peer < rank_size_; ++peer) {
    const uint8_t mark = board_.pair_mark(rank, peer).load(std::memory_order_acquire);
    if (mark == 0 || HostOf(peer) != host) continue;
    const StatusUpdate update{StatusKind::kPair, rank, static_cast<uint64_t>(peer), 0, 0, mark};
    if (!bridge->Tell(host, Encode(update, rank_size_))) return false;
  }
  known = marks;
  return true;
}

StatusReplica::StatusReplica(const Group& group, int rank_size) : own_host_(group.host) {
  const std::shared_ptr<Group> outline = Outline(group);
  for (int r = 0; r < rank_size; ++r) {
    const int host = group.peers[static_cast<size_t>(r)].host;
    host_of_.push_back(host);
    ranks_of_.resize(std::max(ranks_of_.size(), static_cast<size_t>(host) + 1));
    ranks_of_[static_cast<size_t>(host)].push_back(r);
    ends_.emplace_back(outline, r, rank_size);
  }
}

bool StatusReplica::IsOf(int rank, int host) const {
  return host != own_host_ && host_of_[static_cast<size_t>(rank)] == host;
}

bool StatusReplica::MaySend(int host, const StatusUpdate& update) const {
  const bool passed_on = update.kind == StatusKind::kHead || update.kind == StatusKind::kFailed;
  const int host_of = host_of_[static_cast<size_t>(update.rank)];
  return IsOf(update.rank, host) || (passed_on && host != own_host_ && host_of != own_host_);
}

// A rank can begin or refuse a step only after it has ended the previous one, which all other ranks
// have begun, so they have ended the one before.
bool StatusReplica::CanBe(uint64_t step) const {
  uint64_t finished = std::numeric_limits<uint64_t>::max() - 2;
  for (const int rank : RanksOf(own_host_)) {
    const Member& member = board().member(rank);
    finished = std::min(finished, member.finished.load(std::memory_order_acquire));
  }
  return step <= finished + 2;
}

bool StatusReplica::Apply(int host, const StatusUpdate& update) {
  if (!MaySend(host, update)) return false;
  switch (update.kind) {
    case StatusKind::kHeartbeat:
      return true;
    case StatusKind::kHead:
      return ApplyHead(update);
    case StatusKind::kFinished:
      if (!CanBe(update.step)) return false;
      ApplyFinished(update);
      return true;
    case StatusKind::kFailed:
      End(update.rank).PublishFailure(Status(FailureCode(update.code), update.text), update.step);
      return true;
    case StatusKind::kLeft:
      if (update.digest < kClosed || update.digest > kHasNotMet) return false;
      End(update.rank).PublishLeft(update.text, update.step, static_cast<Leaving>(update.digest));
      return true;
    case StatusKind::kEnded:
      SetEnded(update.rank, kProcessEnded);
      return true;
    case StatusKind::kPair:
      if (update.step >= ends_.size()) return false;
      End(update.rank).MarkPair(static_cast<int>(update.step), static_cast<uint8_t>(update.code));
      return true;
  }
  return false;
}

bool StatusReplica::ApplyHead(const StatusUpdate& update) {
  const uint64_t number = NumberOf(update.step);
  const bool refusal = update.step == StepWord(number, HeadKind::kRefusal);
  if (!refusal && !IsCall(update.step)) return false;
  SignalHead& head = board().heads().At(update.rank, number);
  if (NumberOf(head.step.load(std::memory_order_relaxed)) >= number) return true;  // already known
  if (!CanBe(number)) return false;
  if (refusal) {
    WriteReason(update.text, board().refusal_reason(update.rank, number));
  } else {
    if (update.agreement == nullptr) return false;
    std::memcpy(board().agreement(update.rank, number), update.agreement,
                static_cast<size_t>(Agreement::EncodedBytes(static_cast<int>(ends_.size()))));
    if (update.shared != nullptr) {
      std::memcpy(board().shared(update.rank, number), update.shared,
                  static_cast<size_t>(kShareBytes));
    }
    head.digest.store(update.digest, std::memory_order_relaxed);
    head.balance.store(update.balance, std::memory_order_relaxed);
  }
  head.step.store(update.step, std::memory_order_release);
  End(update.rank).RingAll();
  return true;
}

void StatusReplica::ApplyFinished(const StatusUpdate& update) {
  const Member& member = board().member(update.rank);
  if (member.finished.load(std::memory_order_relaxed) < update.step) {
    End(update.rank).Finish(update.step);
  }
}

void StatusReplica::SetEnded(int rank, uint32_t how) {
  std::atomic<uint32_t>& ended = board().member(rank).ended;
  if (ended.load(std::memory_order_relaxed) != kIsThere) return;
  ended.store(how, std::memory_order_release);
  End(rank).RingEveryLane();
}

void StatusReplica::Lose(int host, const std::string& why) {
  for (const int rank : RanksOf(host)) {
    Member& member = board().member(rank);
    const bool there = member.ended.load(std::memory_order_relaxed) == kIsThere;
    // One that has left, or failed, has given its reason.
    const bool silent = member.left.load(std::memory_order_relaxed) == 0 && member.code == NO_ERROR;
    if (there && silent) WriteReason(why, member.reason);
    SetEnded(rank, kCutOff);
  }
}

void StatusReplica::SetAlive(int host) {
  const int64_t now_ms = MonotonicMs();
  for (const int rank : RanksOf(host)) {
    board().member(rank).alive_ms.store(now_ms, std::memory_order_relaxed);
  }
}

}  // namespace collops::control

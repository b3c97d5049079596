#include "collops/comm/control/hosts/watcher.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "collops/comm/control/endpoint.h"
#include "collops/comm/control/first_contact/local_messages.h"
#include "collops/core/deadline.h"
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

std::vector<int> RanksOf(const Group& group, bool own) {
  std::vector<int> ranks;
  for (size_t r = 0; r < group.peers.size(); ++r) {
    if ((group.peers[r].host == group.host) == own) ranks.push_back(static_cast<int>(r));
  }
  return ranks;
}

int NumHosts(const Group& group) {
  int hosts = 0;
  for (const Peer& peer : group.peers) hosts = std::max(hosts, peer.host + 1);
  return hosts;
}

}  // namespace

StatusSender::StatusSender(const Group* group, std::vector<int> ranks, int rank_size)
    : group_(group),
      board_(group->segment.data(), rank_size),
      ranks_(std::move(ranks)),
      rank_size_(rank_size),
      seen_(static_cast<size_t>(rank_size)),
      agreement_(static_cast<size_t>(Agreement::EncodedBytes(rank_size)) / sizeof(int64_t)) {
  for (const int rank : ranks_) Note(rank);
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
}

void StatusSender::LookAtFailure() {
  const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
  if (failed == 0 || failed > static_cast<uint32_t>(rank_size_)) return;
  const int rank = static_cast<int>(failed) - 1;
  Note(rank);
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
    Note(rank);
    LookAtHead(rank, parity);
  }
}

void StatusSender::Note(int rank) {
  if (!std::exchange(SeenOf(rank).noted, true)) reported_.push_back(rank);
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
  if (receivers_.size() <= static_cast<size_t>(host)) {
    receivers_.resize(static_cast<size_t>(host) + 1);
  }
  Receiver& receiver = receivers_[static_cast<size_t>(host)];
  if (receiver.joined != bridge->Joined(host) || receiver.sent.empty()) {
    receiver.joined = bridge->Joined(host);
    receiver.sent.clear();
  }
  receiver.sent.resize(reported_.size());
  // One kind after the other, each for all ranks: the cause (a head, another rank's failure) is
  // sent before the failure or departure that it caused.
  const auto kinds = {&StatusSender::SendHeads, &StatusSender::SendFinished,
                      &StatusSender::SendFailure, &StatusSender::SendLeft,
                      &StatusSender::SendEnded};
  for (const auto tell : kinds) {
    for (size_t i = 0; i < reported_.size(); ++i) {
      if (HostOf(reported_[i]) == host) continue;
      if (!(this->*tell)(reported_[i], &receiver.sent[i], host, bridge)) return false;
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

bool StatusSender::SendFinished(int rank, Sent* sent, int host, Bridge* bridge) const {
  const uint64_t finished = SeenOf(rank).finished;
  if (sent->finished == finished) return true;
  const StatusUpdate update{StatusKind::kFinished, rank, finished};
  if (!bridge->Tell(host, Encode(update, rank_size_))) return false;
  sent->finished = finished;
  return true;
}

bool StatusSender::SendFailure(int rank, Sent* sent, int host, Bridge* bridge) const {
  const Seen& seen = SeenOf(rank);
  if (!seen.failed || (sent->failed && sent->failed_step == seen.failed_step)) return true;
  StatusUpdate update = ReasonOf(StatusKind::kFailed, rank);
  update.step = seen.failed_step;
  if (!bridge->Tell(host, Encode(update, rank_size_))) return false;
  sent->failed = true;
  sent->failed_step = seen.failed_step;
  return true;
}

bool StatusSender::SendLeft(int rank, Sent* sent, int host, Bridge* bridge) const {
  if (!SeenOf(rank).left || sent->left) return true;
  StatusUpdate update = ReasonOf(StatusKind::kLeft, rank);
  update.step = board_.member(rank).left_after.load(std::memory_order_relaxed);
  sent->left = bridge->Tell(host, Encode(update, rank_size_));
  return sent->left;
}

bool StatusSender::SendEnded(int rank, Sent* sent, int host, Bridge* bridge) const {
  if (!SeenOf(rank).ended || sent->ended) return true;
  sent->ended = bridge->Tell(host, Encode({StatusKind::kEnded, rank}, rank_size_));
  return sent->ended;
}

StatusUpdate StatusSender::ReasonOf(StatusKind kind, int rank) const {
  const Member& member = board_.member(rank);
  StatusUpdate update{kind, rank};
  update.code = member.code;
  update.text = ReadReason(member.reason);
  return update;
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
      End(update.rank).PublishLeft(update.text, update.step);
      return true;
    case StatusKind::kEnded:
      SetEnded(update.rank, kProcessEnded);
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

void StatusReplica::NoteAlive(int host) {
  const int64_t now_ms = MonotonicMs();
  for (const int rank : RanksOf(host)) {
    board().member(rank).alive_ms.store(now_ms, std::memory_order_relaxed);
  }
}

Watcher::Watcher(Group group, int rank_size, std::unique_ptr<Bridge> bridge, double flush_s)
    : group_(std::move(group)),
      bridge_(std::move(bridge)),
      board_(group_.segment.data(), rank_size),
      rank_size_(rank_size),
      num_hosts_(NumHosts(group_)),
      own_ranks_(RanksOf(group_, true)),
      doorbell_rank_(RanksOf(group_, false).front()),
      sender_(&group_, own_ranks_, rank_size),
      replica_(group_, rank_size),
      gone_(static_cast<size_t>(num_hosts_), false),
      flush_s_(flush_s) {
  // All hosts were there at first contact: a host that never sends a heartbeat is silent from now
  // on.
  for (int host = 0; host < num_hosts_; ++host) replica_.NoteAlive(host);
  thread_ = std::thread([this] { Run(); });
}

Watcher::~Watcher() {
  stop_.store(true);
  RingDoorbell(group_.doorbell.get());
  thread_.join();
}

void Watcher::Run() {
  // Signals go to the user's threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::atomic<uint32_t>& asleep = board_.member(doorbell_rank_).asleep[kGroupLane];
  asleep.store(kInItsLane,
               std::memory_order_seq_cst);  // awake also while it works, so that no ring is missed
  while (!stop_.load()) {
    Turn();
    SendHeartbeat();
    Sleep();
  }
  Farewell();
  asleep.store(kAwake, std::memory_order_relaxed);
}

void Watcher::Farewell() {
  const Deadline deadline = Deadline::After(flush_s_);
  while (!deadline.Passed()) {
    const bool silent = AllSettled();
    if (Turn() && silent) return;
    Sleep();
  }
}

// Whether the ranks of this host have nothing more to send. After one rank has ended, the others
// finish the step that it has ended, no later one, and none after a failure.
bool Watcher::AllSettled() const {
  uint64_t last = 0;
  for (const int rank : own_ranks_) last = std::max(last, board_.member(rank).finished.load());
  return std::all_of(own_ranks_.begin(), own_ranks_.end(), [&](int rank) {
    const Member& member = board_.member(rank);
    const uint64_t finished = member.finished.load();
    return member.left.load() != 0 || finished == last || replica_.GroupFailed(finished + 1) ||
           sender_.HasEnded(rank);
  });
}

bool Watcher::Turn() {
  TakeAll();
  sender_.Look(rung_ || stop_.load());
  rung_ = false;
  bool all = true;
  for (int host = 0; host < num_hosts_; ++host) {
    if (host == group_.host || IsGone(host)) continue;
    if (bridge_->Lost(host)) {
      Drop(host);
    } else {
      all = sender_.SendTo(host, bridge_.get()) && all;
    }
  }
  return all;
}

void Watcher::TakeAll() {
  int host = -1;
  Frame frame;
  StatusUpdate update;
  while (bridge_->Take(&host, &frame)) {
    if (host < 0 || host >= num_hosts_ || host == group_.host || IsGone(host)) continue;
    replica_.NoteAlive(host);
    if (!Decode(frame, rank_size_, &update) || !replica_.Apply(host, update)) Drop(host);
  }
}

// The host is cut off, or has sent updates that cannot be true.
void Watcher::Drop(int host) {
  gone_[static_cast<size_t>(host)] = true;
  replica_.Lose(host, bridge_->Lost(host) ? bridge_->WhyLost(host) : "it has sent invalid data");
}

void Watcher::SendHeartbeat() {
  const int64_t now_ms = MonotonicMs();
  if (now_ms - heartbeat_ms_ < kHeartbeatMs) return;
  heartbeat_ms_ = now_ms;
  replica_.NoteAlive(group_.host);
  const Frame heartbeat = Encode({StatusKind::kHeartbeat, own_ranks_.front()}, rank_size_);
  for (int host = 0; host < num_hosts_; ++host) {
    // A host that has no room for a heartbeat has other frames of this host to read.
    if (host != group_.host && !IsGone(host)) static_cast<void>(bridge_->Tell(host, heartbeat));
  }
}

void Watcher::Sleep() {
  std::vector<pollfd> polled = {{group_.doorbell.get(), POLLIN, 0}};
  for (const int rank : own_ranks_) {
    const Peer& peer = group_.peers[static_cast<size_t>(rank)];
    const bool there = peer.lifeline.valid() && !sender_.HasEnded(rank);
    if (there) polled.push_back({peer.lifeline.get(), POLLIN, 0});
  }
  bridge_->AddPolled(&polled);
  static_cast<void>(poll(polled.data(), polled.size(), kMostSleepMs));
  uint64_t rung = 0;
  rung_ = polled.front().revents != 0;
  if (rung_) static_cast<void>(!read(group_.doorbell.get(), &rung, sizeof(rung)));
}

}  // namespace collops::control

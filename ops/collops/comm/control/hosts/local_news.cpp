#include "collops/comm/control/hosts/local_news.h"

#include <cstring>
#include <utility>

#include "collops/comm/control/bootstrap/socket.h"
#include "collops/comm/control/endpoint.h"
#include "collops/core/fence.h"

namespace collops::control {
namespace {

// How long the state of a carried step must stay as it is to be sent.
constexpr int64_t kStayMs = 20;

}  // namespace

LocalNews::LocalNews(const Group* group, std::vector<int> ranks, int rank_size)
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
void LocalNews::Look(bool all) {
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
  for (const int rank : news_of_) {
    const Seen& seen = SeenOf(rank);
    all_ = all_ || seen.failed || seen.left || seen.ended;
  }
  for (const int rank : ranks_) LookAtFinished(rank);
  for (const int rank : ranks_) {
    for (const int parity : {0, 1}) LookAtHead(rank, parity);
  }
  // It may add to the list.
  for (size_t i = 0; i < news_of_.size(); ++i) {
    const Seen& seen = SeenOf(news_of_[i]);
    if (seen.failed) LookAtHeadsOf(seen.failed_step);
  }
}

void LocalNews::LookAtFailure() {
  const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
  if (failed == 0 || failed > static_cast<uint32_t>(rank_size_)) return;
  const int rank = static_cast<int>(failed) - 1;
  Note(rank);
  Seen& seen = SeenOf(rank);
  seen.failed = true;
  seen.failed_step = board_.member(rank).failed_step.load(std::memory_order_relaxed);
}

void LocalNews::LookAtHeadsOf(uint64_t failed_step) {
  const int parity = static_cast<int>(failed_step & 1);
  for (int rank = 0; rank < rank_size_; ++rank) {
    const SignalHead& head = board_.heads().At(rank, failed_step);
    const uint64_t word = head.step.load(std::memory_order_relaxed);
    if (HostOf(rank) == group_->host || NumberOf(word) != failed_step) continue;
    Note(rank);
    LookAtHead(rank, parity);
  }
}

void LocalNews::Note(int rank) {
  if (!std::exchange(SeenOf(rank).noted, true)) news_of_.push_back(rank);
}

bool LocalNews::HasStayed(uint64_t value, Fresh* fresh) const {
  if (fresh->value != value) *fresh = {value, now_ms_};
  return now_ms_ - fresh->since_ms >= kStayMs;
}

void LocalNews::LookAtFinished(int rank) {
  Seen& seen = SeenOf(rank);
  const uint64_t finished = board_.member(rank).finished.load(std::memory_order_acquire);
  if (HasStayed(finished, &seen.fresh_finished) || all_) seen.finished = finished;
}

bool LocalNews::IsWanted(uint64_t word, Seen* seen, Fresh* fresh) const {
  if (KindOf(word) == HeadKind::kChanging) return false;
  if (all_ || KindOf(word) != HeadKind::kCarried) return true;
  return HasStayed(word, fresh) && NumberOf(word) > seen->fresh_finished.value;
}

void LocalNews::LookAtHead(int rank, int parity) {
  Seen& seen = SeenOf(rank);
  const SignalHead& head = board_.heads().At(rank, static_cast<uint64_t>(parity));
  const uint64_t word = head.step.load(std::memory_order_acquire);
  if (word == seen.heads[parity] || !IsWanted(word, &seen, &seen.fresh_heads[parity])) return;
  News news{NewsKind::kHead, rank, word};
  if (!ReadHead(rank, word, &news)) return;
  seen.frames[parity] = Encode(news, rank_size_);
  seen.heads[parity] = word;
}

// The rank of a carried head may be two steps further at any moment, and overwrite it: then all
// ranks had gone on, and nobody needs it. The others are needed by all ranks to go on.
bool LocalNews::ReadHead(int rank, uint64_t word, News* news) {
  const uint64_t step = NumberOf(word);
  if (IsRefusal(word)) {
    news->text = ReadReason(board_.refusal_reason(rank, step));
    return true;
  }
  const SignalHead& head = board_.heads().At(rank, step);
  news->digest = head.digest.load(std::memory_order_relaxed);
  news->balance = head.balance.load(std::memory_order_relaxed);
  LoadWords(board_.agreement(rank, step), agreement_.size(), agreement_.data());
  news->agreement = reinterpret_cast<const std::byte*>(agreement_.data());
  Fence(std::memory_order_acquire);
  if (head.step.load(std::memory_order_relaxed) != word) return false;
  // A step that has failed shares nothing, nor does a carried one.
  if (HostOf(rank) != group_->host || KindOf(word) == HeadKind::kCarried) return true;
  std::vector<std::byte>& last = SeenOf(rank).shared[step & 1];
  const std::byte* const shared = board_.shared(rank, step);
  last.resize(static_cast<size_t>(kShareBytes));
  if (std::memcmp(last.data(), shared, last.size()) == 0) return true;
  std::memcpy(last.data(), shared, last.size());
  news->shared = last.data();
  return true;
}

bool LocalNews::TellTo(int host, Bridge* bridge) {
  if (listeners_.size() <= static_cast<size_t>(host)) {
    listeners_.resize(static_cast<size_t>(host) + 1);
  }
  Listener& listener = listeners_[static_cast<size_t>(host)];
  if (listener.joined != bridge->Joined(host) || listener.told.empty()) {
    listener.joined = bridge->Joined(host);
    listener.told.clear();
  }
  listener.told.resize(news_of_.size());
  // One kind after the other, each for all ranks: the cause (a head, another rank's failure) is
  // sent before the failure or departure that it caused.
  const auto kinds = {&LocalNews::TellHeads, &LocalNews::TellFinished, &LocalNews::TellFailure,
                      &LocalNews::TellLeft, &LocalNews::TellEnded};
  for (const auto tell : kinds) {
    for (size_t i = 0; i < news_of_.size(); ++i) {
      if (HostOf(news_of_[i]) == host) continue;
      if (!(this->*tell)(news_of_[i], &listener.told[i], host, bridge)) return false;
    }
  }
  return true;
}

bool LocalNews::HasEnded(int rank) const {
  return SeenOf(rank).ended;
}

bool LocalNews::TellHeads(int rank, Told* told, int host, Bridge* bridge) const {
  const Seen& seen = SeenOf(rank);
  const int first = seen.heads[0] <= seen.heads[1] ? 0 : 1;
  for (const int parity : {first, 1 - first}) {
    if (told->heads[parity] == seen.heads[parity]) continue;
    if (!bridge->Tell(host, seen.frames[parity])) return false;
    told->heads[parity] = seen.heads[parity];
  }
  return true;
}

bool LocalNews::TellFinished(int rank, Told* told, int host, Bridge* bridge) const {
  const uint64_t finished = SeenOf(rank).finished;
  if (told->finished == finished) return true;
  const News news{NewsKind::kFinished, rank, finished};
  if (!bridge->Tell(host, Encode(news, rank_size_))) return false;
  told->finished = finished;
  return true;
}

bool LocalNews::TellFailure(int rank, Told* told, int host, Bridge* bridge) const {
  const Seen& seen = SeenOf(rank);
  if (!seen.failed || (told->failed && told->failed_step == seen.failed_step)) return true;
  News news = ReasonOf(NewsKind::kFailed, rank);
  news.step = seen.failed_step;
  if (!bridge->Tell(host, Encode(news, rank_size_))) return false;
  told->failed = true;
  told->failed_step = seen.failed_step;
  return true;
}

bool LocalNews::TellLeft(int rank, Told* told, int host, Bridge* bridge) const {
  if (!SeenOf(rank).left || told->left) return true;
  News news = ReasonOf(NewsKind::kLeft, rank);
  news.step = board_.member(rank).left_after.load(std::memory_order_relaxed);
  told->left = bridge->Tell(host, Encode(news, rank_size_));
  return told->left;
}

bool LocalNews::TellEnded(int rank, Told* told, int host, Bridge* bridge) const {
  if (!SeenOf(rank).ended || told->ended) return true;
  told->ended = bridge->Tell(host, Encode({NewsKind::kEnded, rank}, rank_size_));
  return told->ended;
}

News LocalNews::ReasonOf(NewsKind kind, int rank) const {
  const Member& member = board_.member(rank);
  News news{kind, rank};
  news.code = member.code;
  news.text = ReadReason(member.reason);
  return news;
}

}  // namespace collops::control

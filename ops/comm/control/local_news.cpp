#include "comm/control/local_news.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/control/bootstrap/socket.h"

namespace collops::control {

LocalNews::LocalNews(const Group* group, std::vector<int> ranks, int rank_size)
    : group_(group),
      board_(group->segment.data(), rank_size),
      ranks_(std::move(ranks)),
      rank_size_(rank_size),
      seen_(ranks_.size()) {}

// A rank's last action is read first, for all ranks: whatever any rank did before it, which may
// have caused it, is then seen as well.
void LocalNews::Look() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Peer& peer = group_->peers[static_cast<size_t>(ranks_[i])];
    Seen& seen = seen_[i];
    seen.ended = seen.ended || (peer.lifeline.valid() && Readable(peer.lifeline.get()));
    seen.left = board_.member(ranks_[i]).left.load(std::memory_order_acquire) != 0;
  }
  const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Member& member = board_.member(ranks_[i]);
    Seen& seen = seen_[i];
    if (failed == static_cast<uint32_t>(ranks_[i]) + 1) {
      seen.failed = true;
      seen.failed_step = member.failed_step.load(std::memory_order_relaxed);
    }
    seen.finished = member.finished.load(std::memory_order_acquire);
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    for (const int parity : {0, 1}) LookAtHead(ranks_[i], parity, &seen_[i]);
  }
}

// A head seen for the first time has not been sent yet, so its rank cannot be two steps further and
// overwrite it.
void LocalNews::LookAtHead(int rank, int parity, Seen* seen) {
  const auto step = static_cast<uint64_t>(parity);
  const SignalHead& head = board_.heads().At(rank, step);
  const uint64_t word = head.step.load(std::memory_order_acquire);
  if (word == seen->heads[parity]) return;
  News news{NewsKind::kHead, rank, word};
  if (IsRefusal(word)) {
    news.text = ReadReason(board_.refusal_reason(rank, step));
  } else {
    news.digest = head.digest;
    news.balance = head.balance;
    news.agreement = reinterpret_cast<const std::byte*>(board_.agreement(rank, step));
    const std::byte* const shared = board_.shared(rank, step);
    std::vector<std::byte>& last = seen->shared[parity];
    if (last.empty()) last.resize(static_cast<size_t>(kShareBytes));
    if (std::memcmp(last.data(), shared, last.size()) != 0) {
      std::memcpy(last.data(), shared, last.size());
      news.shared = last.data();
    }
  }
  seen->frames[parity] = Encode(news, rank_size_);
  seen->heads[parity] = word;
}

bool LocalNews::TellTo(int host, Bridge* bridge) {
  if (listeners_.size() <= static_cast<size_t>(host)) {
    listeners_.resize(static_cast<size_t>(host) + 1);
  }
  Listener& listener = listeners_[static_cast<size_t>(host)];
  if (listener.joined != bridge->Joined(host) || listener.told.empty()) {
    listener.joined = bridge->Joined(host);
    listener.told.assign(ranks_.size(), Told());
  }
  // One kind after the other, each for all ranks: the cause (a head, another rank's failure) is
  // sent before the failure or departure that it caused.
  const auto kinds = {&LocalNews::TellHeads, &LocalNews::TellFinished, &LocalNews::TellFailure,
                      &LocalNews::TellLeft, &LocalNews::TellEnded};
  for (const auto tell : kinds) {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!(this->*tell)(i, &listener.told[i], host, bridge)) return false;
    }
  }
  return true;
}

bool LocalNews::HasEnded(int rank) const {
  const auto at = std::find(ranks_.begin(), ranks_.end(), rank);
  return seen_[static_cast<size_t>(at - ranks_.begin())].ended;
}

bool LocalNews::TellHeads(size_t index, Told* told, int host, Bridge* bridge) const {
  const Seen& seen = seen_[index];
  const int first = seen.heads[0] <= seen.heads[1] ? 0 : 1;
  for (const int parity : {first, 1 - first}) {
    if (told->heads[parity] == seen.heads[parity]) continue;
    if (!bridge->Tell(host, seen.frames[parity])) return false;
    told->heads[parity] = seen.heads[parity];
  }
  return true;
}

bool LocalNews::TellFinished(size_t index, Told* told, int host, Bridge* bridge) const {
  const uint64_t finished = seen_[index].finished;
  if (told->finished == finished) return true;
  const News news{NewsKind::kFinished, ranks_[index], finished};
  if (!bridge->Tell(host, Encode(news, rank_size_))) return false;
  told->finished = finished;
  return true;
}

bool LocalNews::TellFailure(size_t index, Told* told, int host, Bridge* bridge) const {
  const Seen& seen = seen_[index];
  if (!seen.failed || (told->failed && told->failed_step == seen.failed_step)) return true;
  News news = ReasonOf(NewsKind::kFailed, ranks_[index]);
  news.step = seen.failed_step;
  if (!bridge->Tell(host, Encode(news, rank_size_))) return false;
  told->failed = true;
  told->failed_step = seen.failed_step;
  return true;
}

bool LocalNews::TellLeft(size_t index, Told* told, int host, Bridge* bridge) const {
  if (!seen_[index].left || told->left) return true;
  const News news = ReasonOf(NewsKind::kLeft, ranks_[index]);
  told->left = bridge->Tell(host, Encode(news, rank_size_));
  return told->left;
}

bool LocalNews::TellEnded(size_t index, Told* told, int host, Bridge* bridge) const {
  if (!seen_[index].ended || told->ended) return true;
  told->ended = bridge->Tell(host, Encode({NewsKind::kEnded, ranks_[index]}, rank_size_));
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

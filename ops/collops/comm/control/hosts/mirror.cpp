#include "collops/comm/control/hosts/mirror.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

namespace collops::control {
namespace {

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

}  // namespace

Mirror::Mirror(const Group& group, int rank_size) : own_host_(group.host) {
  const std::shared_ptr<Group> outline = Outline(group);
  for (int r = 0; r < rank_size; ++r) {
    const int host = group.peers[static_cast<size_t>(r)].host;
    host_of_.push_back(host);
    ranks_of_.resize(std::max(ranks_of_.size(), static_cast<size_t>(host) + 1));
    ranks_of_[static_cast<size_t>(host)].push_back(r);
    ends_.emplace_back(outline, r, rank_size);
  }
}

bool Mirror::IsOf(int rank, int host) const {
  return host != own_host_ && host_of_[static_cast<size_t>(rank)] == host;
}

bool Mirror::MaySend(int host, const News& news) const {
  const bool passed_on = news.kind == NewsKind::kHead || news.kind == NewsKind::kFailed;
  const int host_of = host_of_[static_cast<size_t>(news.rank)];
  return IsOf(news.rank, host) || (passed_on && host != own_host_ && host_of != own_host_);
}

// A rank can begin or refuse a step only after it has ended the previous one, which all other ranks
// have begun, so they have ended the one before.
bool Mirror::CanBe(uint64_t step) const {
  uint64_t finished = std::numeric_limits<uint64_t>::max() - 2;
  for (const int rank : RanksOf(own_host_)) {
    const Member& member = board().member(rank);
    finished = std::min(finished, member.finished.load(std::memory_order_acquire));
  }
  return step <= finished + 2;
}

bool Mirror::Apply(int host, const News& news) {
  if (!MaySend(host, news)) return false;
  switch (news.kind) {
    case NewsKind::kBeat:
      return true;
    case NewsKind::kHead:
      return ApplyHead(news);
    case NewsKind::kFinished:
      if (!CanBe(news.step)) return false;
      ApplyFinished(news);
      return true;
    case NewsKind::kFailed:
      End(news.rank).PublishFailure(Status(FailureCode(news.code), news.text), news.step);
      return true;
    case NewsKind::kLeft:
      End(news.rank).PublishLeft(news.text, news.step);
      return true;
    case NewsKind::kEnded:
      SetEnded(news.rank, kProcessEnded);
      return true;
  }
  return false;
}

bool Mirror::ApplyHead(const News& news) {
  const uint64_t number = NumberOf(news.step);
  const bool refusal = news.step == StepWord(number, HeadKind::kRefusal);
  if (!refusal && !IsCall(news.step)) return false;
  SignalHead& head = board().heads().At(news.rank, number);
  if (NumberOf(head.step.load(std::memory_order_relaxed)) >= number) return true;  // already known
  if (!CanBe(number)) return false;
  if (refusal) {
    WriteReason(news.text, board().refusal_reason(news.rank, number));
  } else {
    if (news.agreement == nullptr) return false;
    std::memcpy(board().agreement(news.rank, number), news.agreement,
                static_cast<size_t>(Agreement::EncodedBytes(static_cast<int>(ends_.size()))));
    if (news.shared != nullptr) {
      std::memcpy(board().shared(news.rank, number), news.shared, static_cast<size_t>(kShareBytes));
    }
    head.digest.store(news.digest, std::memory_order_relaxed);
    head.balance.store(news.balance, std::memory_order_relaxed);
  }
  head.step.store(news.step, std::memory_order_release);
  End(news.rank).RingAll();
  return true;
}

void Mirror::ApplyFinished(const News& news) {
  const Member& member = board().member(news.rank);
  if (member.finished.load(std::memory_order_relaxed) < news.step) {
    End(news.rank).Finish(news.step);
  }
}

void Mirror::SetEnded(int rank, uint32_t how) {
  std::atomic<uint32_t>& ended = board().member(rank).ended;
  if (ended.load(std::memory_order_relaxed) != kIsThere) return;
  ended.store(how, std::memory_order_release);
  End(rank).RingEveryLane();
}

void Mirror::Lose(int host, const std::string& why) {
  for (const int rank : RanksOf(host)) {
    Member& member = board().member(rank);
    const bool there = member.ended.load(std::memory_order_relaxed) == kIsThere;
    // One that has left, or failed, has given its reason.
    const bool silent = member.left.load(std::memory_order_relaxed) == 0 && member.code == NO_ERROR;
    if (there && silent) WriteReason(why, member.reason);
    SetEnded(rank, kCutOff);
  }
}

void Mirror::NoteAlive(int host) {
  const int64_t now_ms = MonotonicMs();
  for (const int rank : RanksOf(host)) {
    board().member(rank).alive_ms.store(now_ms, std::memory_order_relaxed);
  }
}

}  // namespace collops::control

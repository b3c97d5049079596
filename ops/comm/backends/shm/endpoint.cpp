#include "comm/backends/shm/endpoint.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <fstream>

#include "comm/backends/shm/socket.h"
#include "core/fence.h"

namespace collops::shm {
namespace {

constexpr long kNapMs = 20;

void CopyReason(const std::string& reason, char* text) {
  const size_t length = reason.copy(text, kReasonBytes - 1);
  text[length] = '\0';
}

// The letter in /proc/<pid>/stat in words.
std::string ProcessState(pid_t pid) {
  std::ifstream stat(Concat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return "its process cannot be seen from here";
  switch (line[name_end + 2]) {
    case 'T':
    case 't':
      return "its process is stopped";
    case 'Z':
    case 'X':
      return "its process has ended";
    case 'R':
      return "its process is running";
    default:
      return "its process is sleeping";
  }
}

}  // namespace

Endpoint::Endpoint(Group group, int rank, int rank_size)
    : group_(std::move(group)),
      layout_(group_.segment.data(), rank_size),
      rank_(rank),
      size_(rank_size) {}

void Endpoint::RingAll() {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) Ring(r);
  }
}

void Endpoint::WakeUp(int peer) {
  RankState& state = layout_.rank(peer);
  state.doorbell.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &state.doorbell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Endpoint::SleepOn(uint32_t bell) {
  const timespec nap{0, kNapMs * 1000000};
  syscall(SYS_futex, &layout_.rank(rank_).doorbell, FUTEX_WAIT, bell, &nap, nullptr, 0);
}

void Endpoint::PublishFailure(const Status& status, uint64_t sequence) {
  RankState& self = layout_.rank(rank_);
  std::atomic<uint32_t>& failed = layout_.group().failed_rank;
  uint32_t first = failed.load(std::memory_order_acquire);
  if (first != 0 && FailedCall(first) <= sequence) return RingAll();
  self.failed_call.store(sequence, std::memory_order_relaxed);
  if (self.code == NO_ERROR) {  // else peers may be reading the reason
    self.code = status.code();
    CopyReason(status.message(), self.reason);
  }
  while (first == 0 || FailedCall(first) > sequence) {
    if (failed.compare_exchange_strong(first, static_cast<uint32_t>(rank_) + 1)) break;
  }
  // The caller may overwrite its window next; whoever reads that must see the flag.
  Fence(std::memory_order_seq_cst);
  RingAll();
}

Status Endpoint::GroupFailure(uint64_t sequence) const {
  const uint32_t failed = layout_.group().failed_rank.load(std::memory_order_acquire);
  if (failed == 0 || FailedCall(failed) > sequence) return Ok();
  const int reporter = Reporter(failed);
  const RankState& state = layout_.rank(reporter);
  const std::string by = reporter == rank_ ? "" : Concat(" (reported by rank ", reporter, ")");
  return Status(static_cast<ErrorCode>(state.code), ReadReason(state.reason) + by);
}

void Endpoint::PublishLeft(const std::string& reason) {
  RankState& self = layout_.rank(rank_);
  if (self.left.load(std::memory_order_relaxed) != 0) return;
  if (self.code == NO_ERROR) CopyReason(reason, self.reason);
  self.left.store(1, std::memory_order_release);
  RingAll();
}

bool Endpoint::HasEnded(int rank) const {
  const Peer& peer = group_.peers[static_cast<size_t>(rank)];
  return peer.lifeline.valid() && Readable(peer.lifeline.get());
}

bool Endpoint::HasLeft(int rank) const {
  if (layout_.rank(rank).left.load(std::memory_order_acquire) != 0) return true;
  // The mailbox is only ever written to: it turns readable when its other end has been closed.
  return HasEnded(rank) || Readable(group_.peers[static_cast<size_t>(rank)].mailbox.get());
}

Status Endpoint::Lost(int rank) const {
  const RankState& state = layout_.rank(rank);
  const std::string who = Concat("rank ", rank, " (pid ", pid(rank), ")");
  if (state.left.load(std::memory_order_acquire) == 0) {
    return Error(ERROR_PEER_LOST, who, " ended without a word");
  }
  return Error(ERROR_PEER_LOST, who, " has left: ", ReadReason(state.reason));
}

Status Endpoint::FindLoss(uint64_t sequence) const {
  for (int r = 0; r < size_; ++r) {
    const RankState& state = layout_.rank(r);
    if (r == rank_ || state.finished.load(std::memory_order_acquire) >= sequence) continue;
    if (!HasLeft(r)) continue;
    // It may have finished its part just before it left.
    if (state.finished.load(std::memory_order_acquire) >= sequence) continue;
    return Lost(r);
  }
  return Ok();
}

Status Endpoint::FindLossAmong(const std::vector<int>& ranks, bool also_left) const {
  for (const int r : ranks) {
    if (r != rank_ && (also_left ? HasLeft(r) : HasEnded(r))) return Lost(r);
  }
  return Ok();
}

std::string Endpoint::DescribeLate(uint64_t sequence) const {
  const std::string absent = DescribeUnfinished(sequence, false);
  // Ranks that are in the call wait, as we do, for those that are not.
  return absent.empty() ? DescribeUnfinished(sequence, true) : absent;
}

std::string Endpoint::DescribeUnfinished(uint64_t sequence, bool begun) const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || layout_.rank(r).finished.load(std::memory_order_acquire) >= sequence)
      continue;
    const Announcement& announcement = layout_.announcement(r, sequence);
    const bool has_begun = announcement.sequence.load(std::memory_order_acquire) >= sequence;
    if (has_begun != begun) continue;
    text += Concat(text.empty() ? "" : "; ", "rank ", r, " (pid ", pid(r), ") ",
                   begun ? "has begun but not finished it" : "has not begun it", ", ",
                   ProcessState(pid(r)));
  }
  return text;
}

}  // namespace collops::shm

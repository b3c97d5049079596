#include "collops/comm/control/endpoint.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <fstream>

#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"

namespace collops::control {
namespace {

// The state letter in /proc/<pid>/stat, in words that follow a rank.
std::string ProcessState(pid_t pid) {
  std::ifstream stat(Concat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(") ");
  if (name_end == std::string::npos) return "not visible from here";
  switch (line[name_end + 2]) {
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "already ended";
    case 'R':
      return "running";
    default:
      return "sleeping";
  }
}

// A silence that a message mentions; heartbeats come ten times as often.
constexpr int64_t kSilenceMs = 1000;

}  // namespace

int64_t MonotonicMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

void RingDoorbell(int doorbell) {
  if (doorbell < 0) return;
  const uint64_t one = 1;
  // A write fails only if the doorbell is full: then it is already ringing.
  static_cast<void>(!write(doorbell, &one, sizeof(one)));
}

Endpoint::Endpoint(std::shared_ptr<Group> group, int rank, int rank_size)
    : group_(std::move(group)),
      board_(group_->segment.data(), rank_size),
      heads_(board_.heads()),
      rank_(rank),
      size_(rank_size) {}

void Endpoint::RingAll() {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) Ring(r);
  }
}

void Endpoint::RingHost() {
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !IsRemote(r)) Ring(r);
  }
}

void Endpoint::RingEveryLane() {
  for (int r = 0; r < size_; ++r) {
    Ring(r, kGroupLane);
    Ring(r, kPairLane);
  }
}

void Endpoint::WakeUp(int peer, Lane lane) {
  std::atomic<uint32_t>& doorbell = board_.member(peer).doorbell[lane];
  doorbell.fetch_add(1, std::memory_order_seq_cst);
  if (IsRemote(peer)) return RingDoorbell(group_->doorbell.get());
  syscall(SYS_futex, &doorbell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Endpoint::SleepOn(Lane lane, uint32_t doorbell, int most_ms) {
  const timespec limit{0, long{1000000} * most_ms};
  syscall(SYS_futex, &board_.member(rank_).doorbell[lane], FUTEX_WAIT, doorbell, &limit, nullptr,
          0);
}

void Endpoint::Finish(uint64_t step) {
  PublishFinished(&board_.member(rank_).finished, step);
  RingAll();
}

void Endpoint::FinishOnHost(uint64_t step) {
  PublishFinished(&board_.member(rank_).finished, step);
  RingHost();
}

void Endpoint::PublishFailure(const Status& status, uint64_t step) {
  Member& self = board_.member(rank_);
  const auto step_of = [this](uint32_t failed) { return FailedStep(failed); };
  // The caller may overwrite its window next.
  Failures::Publish(&board_.group().failed_rank, &self.failed_step, rank_, step, step_of, [&] {
    if (self.code != NO_ERROR) return;  // peers may be reading the reason
    self.code = status.code();
    // Peers may be reading why this rank has left.
    if (self.left.load(std::memory_order_relaxed) == 0) WriteReason(status.message(), self.reason);
  });
  RingEveryLane();
}

Status Endpoint::ReportedFailure() const {
  const uint32_t failed = board_.group().failed_rank.load(std::memory_order_acquire);
  const int reporter = Reporter(failed);
  const Member& state = board_.member(reporter);
  const std::string by = reporter == rank_ ? "" : Concat(" (reported by rank ", reporter, ")");
  return Status(FailureCode(state.code), ReadReason(state.reason) + by);
}

void Endpoint::PublishLeft(const std::string& reason, uint64_t calls, Leaving how) {
  Member& self = board_.member(rank_);
  if (self.left.load(std::memory_order_relaxed) != 0) return;
  if (self.code == NO_ERROR) WriteReason(reason, self.reason);
  self.left_after.store(calls, std::memory_order_relaxed);
  self.left.store(how, std::memory_order_release);
  RingEveryLane();
}

void Endpoint::MarkPair(int peer, uint8_t mark) {
  const uint8_t before = board_.pair_mark(rank_, peer).fetch_or(mark, std::memory_order_release);
  if ((before & mark) != mark) ++board_.member(rank_).pair_marks;
}

int Endpoint::WitnessOf(int rank) const {
  if (!IsRemote(rank)) return rank;
  int witness = 0;
  while (IsRemote(witness)) ++witness;
  return witness;
}

bool Endpoint::HasEnded(int rank) const {
  if (board_.member(rank).ended.load(std::memory_order_acquire) != kIsThere) return true;
  const Peer& peer = group_->peers[static_cast<size_t>(WitnessOf(rank))];
  return peer.lifeline.valid() && Readable(peer.lifeline.get());
}

bool Endpoint::HasLeft(int rank) const {
  if (board_.member(rank).left.load(std::memory_order_acquire) != 0) return true;
  // A mailbox is only written to: it becomes readable when its other end has been closed.
  return HasEnded(rank) || Readable(group_->peers[static_cast<size_t>(rank)].mailbox.get());
}

void Endpoint::PublishCallsEnded() {
  board_.member(rank_).calls_ended.store(1, std::memory_order_release);
}

bool Endpoint::HaveCallsEnded(int rank) const {
  return board_.member(rank).calls_ended.load(std::memory_order_acquire) != 0 || HasEnded(rank);
}

Ending Endpoint::EndingOf(int rank) const {
  const Member& member = board_.member(rank);
  const Peer& peer = group_->peers[static_cast<size_t>(rank)];
  const bool ended = peer.lifeline.valid() && Readable(peer.lifeline.get());
  if (ended || member.left.load(std::memory_order_acquire) == kClosed) return kProcessEnded;
  return static_cast<Ending>(member.ended.load(std::memory_order_acquire));
}

bool Endpoint::OthersGoOn() const {
  for (int r = 0; r < size_; ++r) {
    const uint32_t left = board_.member(r).left.load(std::memory_order_acquire);
    if (r != rank_ && left == kGoesOn) return true;
  }
  return false;
}

Status Endpoint::Lost(int rank) const {
  const Member& state = board_.member(rank);
  const std::string who = Who(rank);
  if (state.left.load(std::memory_order_acquire) == 0) {
    const uint32_t ended = state.ended.load(std::memory_order_acquire);
    if (ended == kCutOff) {
      const std::string why = state.code == NO_ERROR ? ReadReason(state.reason) : "";
      return Error(ERROR_PEER_LOST, who, ": the connection to its host is lost",
                   why.empty() ? "" : ": ", why);
    }
    if (ended == kIsThere && WitnessOf(rank) != rank) return Lost(WitnessOf(rank));
    const Status word = VerdictInMailbox(group_->peers[static_cast<size_t>(rank)].mailbox.get());
    COLLOPS_CHECK_ARG(word.ok(), ERROR_PEER_LOST, who, " has left: ", word.message());
    return Error(ERROR_PEER_LOST, who, " exited without reporting an error");
  }
  return Error(ERROR_PEER_LOST, who, " has left: ", ReadReason(state.reason));
}

Status Endpoint::FindLoss(uint64_t step) const {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || HasFinished(r, step) || !HasLeft(r)) continue;
    // The rank may have finished the step just before it left.
    if (HasFinished(r, step)) continue;
    return Lost(r);
  }
  return Ok();
}

Status Endpoint::FindLossOnStreams(uint64_t calls, const RankSet& needed) const {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || !HasLeft(r)) continue;
    const Member& state = board_.member(r);
    const bool closed = state.left.load(std::memory_order_acquire) != 0;
    if (closed && state.left_after.load(std::memory_order_relaxed) >= calls && !needed.Contains(r))
      continue;
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

Status Endpoint::FindDeparture(int rank, bool* left) const {
  if (rank == rank_ || !HasLeft(rank)) return Ok();
  *left = board_.member(rank).left.load(std::memory_order_acquire) != 0;
  return Lost(rank);
}

std::string Endpoint::DescribeRank(int rank) const {
  const uint64_t begun = std::max(NumberOf(head(rank, 0).step.load(std::memory_order_acquire)),
                                  NumberOf(head(rank, 1).step.load(std::memory_order_acquire)));
  std::string work = board_.member(rank).pair_call.Read();
  if (!HasFinished(rank, begun)) {
    const int64_t* const encoded = board_.agreement(rank, begun);
    const uint64_t call = Agreement::EncodedCall(encoded);
    work = Concat("call ", call == 0 ? begun : call, " (", Agreement::EncodedName(encoded), ")");
  }
  return Concat(Who(rank), ", ", DescribeState(rank), ", is in ", work.empty() ? "no call" : work);
}

std::string Endpoint::DescribeLate(uint64_t step) const {
  const std::string absent = DescribeUnfinished(step, false);
  // The ranks that are in the call wait, too: name those that are not.
  return absent.empty() ? DescribeUnfinished(step, true) : absent;
}

int64_t Endpoint::SilentMs(int rank) const {
  const int64_t alive_ms = board_.member(rank).alive_ms.load(std::memory_order_relaxed);
  return alive_ms <= 0 ? 0 : MonotonicMs() - alive_ms;
}

std::string Endpoint::DescribeState(int rank) const {
  if (!IsRemote(rank)) return ProcessState(pid(rank));
  // If this host's watcher is silent, it cannot report the other one's state.
  const int silent = SilentMs(rank_) >= kSilenceMs ? rank_ : rank;
  if (SilentMs(silent) < kSilenceMs) return "on another host";
  const auto host_of = [&](int r) { return group_->peers[static_cast<size_t>(r)].host; };
  int relay = silent;
  for (int r = silent; r >= 0; --r) relay = host_of(r) == host_of(silent) ? r : relay;
  return Concat("on another host (", Who(relay), ", which speaks for ",
                silent == rank_ ? "this" : "that", " host, has been silent for ",
                static_cast<double>(SilentMs(silent) / 100) / 10, " s and may be stopped)");
}

std::string Endpoint::DescribeUnfinished(uint64_t step, bool begun) const {
  std::string text;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || HasFinished(r, step) || HasBegun(r, step) != begun) continue;
    const std::string pair_call = board_.member(r).pair_call.Read();
    text += Concat(text.empty() ? "" : "; ", Who(r), ", ", DescribeState(r), ", ",
                   begun ? "has entered it but not finished" : "has not entered it",
                   pair_call.empty() ? "" : Concat(": it is in ", pair_call));
  }
  return text;
}

}  // namespace collops::control

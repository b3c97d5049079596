#include "collops/comm/backends/shm/peer_copy.h"

#include <algorithm>
#include <chrono>

#include "collops/kernels/copy.h"

namespace collops::shm {
namespace {

// Below this size the stores end before they have to wait for a line.
constexpr int64_t kLeastBytes = 2 << 10;
// From this size on reading the clock costs nothing; of smaller copies only some are timed.
constexpr int64_t kAlwaysTimedBytes = 32 << 10;
constexpr uint32_t kTimedEvery = 8;
// Lines that were stored past the caches come from memory when they are read: what the reader then
// loses, in ns per KiB. Chosen on a Zen 3 with two cores: with 16 KiB and near cores the whole call
// takes 1.4 us longer than through the caches (86 ns per KiB), although the store itself is faster.
constexpr double kReaderLoss = 70;
// After a change of the way so many copies are not timed.
constexpr uint32_t kUntimed = 8;
// A copy during which the thread lost its core counts as one that took so many times as long.
constexpr double kMostSlower = 4;

}  // namespace

CopyWay CopyChoice::Next(int64_t bytes, bool* timed) {
  const bool always = bytes >= kAlwaysTimedBytes;
  constexpr uint32_t kPeriod = kTriedEvery * kTries;
  tries_ = ++copies_ % kPeriod >= kPeriod - kTries;
  CopyWay way = CopyWay::kCached;
  const bool known = cost(CopyWay::kCached) != 0 && cost(CopyWay::kStreamed) != 0;
  if (known) {
    const bool streams = cost(CopyWay::kStreamed) + kReaderLoss < cost(CopyWay::kCached);
    way = streams != tries_ ? CopyWay::kStreamed : CopyWay::kCached;
  } else if (cost(CopyWay::kCached) != 0) {
    way = CopyWay::kStreamed;
  }
  in_a_row_ = way == last_ ? in_a_row_ + 1 : 1;
  last_ = way;
  const bool due = always || tries_ || !known || copies_ % kTimedEvery == 0;
  *timed = due && in_a_row_ > kUntimed;
  return way;
}

void CopyChoice::Learn(CopyWay way, double ns_per_kib) {
  double& known = cost(way);
  if (known == 0) {
    known = ns_per_kib;
    return;
  }
  const double weight = tries_ ? 0.5 : 0.125;
  known += weight * (std::min(ns_per_kib, kMostSlower * known) - known);
}

void PeerCopy::Copy(void* destination, const void* source, int64_t bytes) {
  if (bytes < kLeastBytes) return kernels::Copy(destination, source, bytes);
  bool timed = false;
  const CopyWay way = choice_.Next(bytes, &timed);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point();
  if (way == CopyWay::kCached) {
    kernels::Copy(destination, source, bytes);
  } else {
    kernels::CopyPastCaches(destination, source, bytes);
  }
  if (!timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  choice_.Learn(way, std::max(took.count(), 1.0) * 1024 / static_cast<double>(bytes));
}

}  // namespace collops::shm

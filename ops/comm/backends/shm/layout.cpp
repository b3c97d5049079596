#include "comm/backends/shm/layout.h"

#include <cstring>

namespace collops::shm {
namespace {

constexpr int64_t kPageBytes = 4096;

constexpr int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

constexpr int64_t kStateBytes = sizeof(RankState);
constexpr int64_t kAnnouncementBytes = sizeof(Announcement);
constexpr int64_t kSignalBytes = sizeof(ChunkSignal);
static_assert(sizeof(FusedSignal) == sizeof(ChunkSignal));

}  // namespace

std::string ReadReason(const char* text) {
  char copy[kReasonBytes];
  std::memcpy(copy, text, sizeof(copy));
  copy[kReasonBytes - 1] = '\0';
  return copy;
}

// One rank's part: state | 2 announcements | 2 details | produced and consumed signals, one per
// peer each | signals of fused calls | 2 slots | stage.
int64_t Layout::DetailBytes(int rank_size) {
  const int64_t numbers = 2 * rank_size + kMaxTerms;
  return RoundUp(numbers * int64_t{sizeof(int64_t)} + int64_t{kReasonBytes}, kLineBytes);
}

int64_t Layout::RankBytes(int rank_size) {
  const int64_t control = kStateBytes + 2 * kAnnouncementBytes + 2 * DetailBytes(rank_size) +
                          (2 * rank_size + NumFusedSignals(rank_size)) * kSignalBytes;
  return RoundUp(control, kPageBytes) + 2 * kSlotBytes + kStageBytes;
}

int64_t Layout::Bytes(int rank_size) {
  return kPageBytes + rank_size * RankBytes(rank_size);
}

std::byte* Layout::RankBase(int rank) const {
  return base_ + kPageBytes + rank * RankBytes(rank_size_);
}

RankState& Layout::rank(int rank) const {
  return *reinterpret_cast<RankState*>(RankBase(rank));
}

Announcement& Layout::announcement(int rank, uint64_t sequence) const {
  auto* first = reinterpret_cast<Announcement*>(RankBase(rank) + kStateBytes);
  return first[sequence & 1];
}

std::byte* Layout::Detail(int rank, uint64_t sequence) const {
  const int64_t parity = static_cast<int64_t>(sequence & 1);
  return RankBase(rank) + kStateBytes + 2 * kAnnouncementBytes + parity * DetailBytes(rank_size_);
}

int64_t* Layout::counts(int rank, uint64_t sequence) const {
  return reinterpret_cast<int64_t*>(Detail(rank, sequence));
}

int64_t* Layout::terms(int rank, uint64_t sequence) const {
  return counts(rank, sequence) + 2 * rank_size_;
}

char* Layout::refusal_reason(int rank, uint64_t sequence) const {
  return reinterpret_cast<char*>(terms(rank, sequence) + kMaxTerms);
}

ChunkSignal& Layout::produced(int writer, int reader) const {
  auto* first = reinterpret_cast<ChunkSignal*>(
      RankBase(writer) + kStateBytes + 2 * kAnnouncementBytes + 2 * DetailBytes(rank_size_));
  return first[reader];
}

ChunkSignal& Layout::consumed(int writer, int reader) const {
  return (&produced(reader, 0))[rank_size_ + writer];
}

FusedSignal& Layout::fused_signal(int rank, int index) const {
  return reinterpret_cast<FusedSignal*>(&produced(rank, 0) + 2 * rank_size_)[index];
}

std::byte* Layout::slot(int rank, uint64_t sequence) const {
  return stage(rank) - 2 * kSlotBytes + static_cast<int64_t>(sequence & 1) * kSlotBytes;
}

std::byte* Layout::stage(int rank) const {
  return RankBase(rank) + RankBytes(rank_size_) - kStageBytes;
}

}  // namespace collops::shm

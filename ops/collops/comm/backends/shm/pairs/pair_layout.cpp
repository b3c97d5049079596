#include "collops/comm/backends/shm/pairs/pair_layout.h"

#include <algorithm>
#include <cstring>

namespace collops::shm {
namespace {

constexpr int64_t kLines = sizeof(ReceiverLine) + sizeof(SenderLine);
// A body in its envelope is with the receiver after one trip, one in a ring after three (envelope,
// verdict, chunk), so few ranks have large slots. Limits for all pairs together, with large slots
// and with small ones; kLeastInlineBytes takes precedence.
constexpr int64_t kMostLargeBytes = 5 << 20;
constexpr int64_t kMostPairBytes = 16 << 20;
constexpr int64_t kLeastInlineBytes = 64;
constexpr int64_t kSmallInlineBytes = 4 << 10;
constexpr int64_t kMostInlineBytes = 256 << 10;

constexpr int64_t PairBytes(int64_t inline_bytes) {
  return kLines + kPairSlots * (int64_t{sizeof(EnvelopeSlot)} + inline_bytes);
}

}  // namespace

// The largest power of two that fits, plus 64 bytes: then the envelope fills whole lines of 128.
int64_t PairLayout::InlineBytes(int rank_size) {
  const int64_t pairs = int64_t{rank_size} * rank_size;
  for (int64_t power = kMostInlineBytes; power > kLeastInlineBytes; power /= 2) {
    const int64_t inline_bytes = power + kLeastInlineBytes;
    const int64_t most = power > kSmallInlineBytes ? kMostLargeBytes : kMostPairBytes;
    if (pairs * PairBytes(inline_bytes) <= most) return inline_bytes;
  }
  return kLeastInlineBytes;
}

int64_t PairLayout::Bytes(int rank_size) {
  return int64_t{rank_size} * rank_size * PairBytes(InlineBytes(rank_size)) +
         int64_t{rank_size} * kPairTexts * int64_t{sizeof(TextSlot)};
}

PairLayout::PairLayout(std::byte* base, int rank_size)
    : base_(base),
      rank_size_(rank_size),
      inline_bytes_(InlineBytes(rank_size)),
      pair_bytes_(PairBytes(inline_bytes_)) {}

std::byte* PairLayout::Pair(int sender, int receiver) const {
  return base_ + (int64_t{sender} * rank_size_ + receiver) * pair_bytes_;
}

ReceiverLine& PairLayout::receiver_line(int sender, int receiver) const {
  return *reinterpret_cast<ReceiverLine*>(Pair(sender, receiver));
}

SenderLine& PairLayout::sender_line(int sender, int receiver) const {
  return *reinterpret_cast<SenderLine*>(Pair(sender, receiver) + sizeof(ReceiverLine));
}

EnvelopeSlot& PairLayout::envelope(int sender, int receiver, uint64_t number) const {
  const int64_t slot = static_cast<int64_t>(number % kPairSlots);
  const int64_t slot_bytes = int64_t{sizeof(EnvelopeSlot)} + inline_bytes_;
  return *reinterpret_cast<EnvelopeSlot*>(Pair(sender, receiver) + kLines + slot * slot_bytes);
}

TextSlot& PairLayout::text(int rank, uint64_t stamp) const {
  std::byte* const texts = base_ + int64_t{rank_size_} * rank_size_ * pair_bytes_;
  return reinterpret_cast<TextSlot*>(
      texts)[int64_t{rank} * kPairTexts + static_cast<int64_t>(stamp % kPairTexts)];
}

void PairLayout::WriteText(int rank, uint64_t stamp, const std::string& words) const {
  uint64_t copy[kPairTextWords] = {};
  std::memcpy(copy, words.data(), std::min(words.size(), sizeof(copy) - 1));
  text(rank, stamp).Write(stamp, copy);
}

std::string PairLayout::ReadText(int rank, uint64_t stamp) const {
  uint64_t copy[kPairTextWords] = {};
  if (!text(rank, stamp).Read(stamp, copy)) return "";
  const auto* const words = reinterpret_cast<const char*>(copy);
  return std::string(words, strnlen(words, sizeof(copy) - 1));
}

}  // namespace collops::shm

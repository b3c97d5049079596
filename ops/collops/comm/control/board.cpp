#include "collops/comm/control/board.h"

#include <cstddef>
#include <cstring>

namespace collops::control {

ErrorCode FailureCode(int32_t code) {
  const bool known = code != NO_ERROR && std::strcmp(ErrorName(code), "ERROR_UNKNOWN") != 0;
  return known ? static_cast<ErrorCode>(code) : ERROR_PEER_LOST;
}

std::string ReadReason(const char* text) {
  char copy[kReasonBytes];
  std::memcpy(copy, text, sizeof(copy));
  copy[kReasonBytes - 1] = '\0';
  return copy;
}

void WriteReason(const std::string& reason, char* text) {
  const size_t length = reason.copy(text, kReasonBytes - 1);
  text[length] = '\0';
}

void StoreWords(const int64_t* from, size_t count, int64_t* board) {
  for (size_t i = 0; i < count; ++i) __atomic_store_n(board + i, from[i], __ATOMIC_RELAXED);
}

void LoadWords(const int64_t* board, size_t count, int64_t* to) {
  for (size_t i = 0; i < count; ++i) to[i] = __atomic_load_n(board + i, __ATOMIC_RELAXED);
}

void SharedText::Write(const std::string& text) {
  char copy[sizeof(words_)] = {};
  text.copy(copy, sizeof(copy) - 1);
  for (size_t i = 0; i < kWords; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, copy + i * sizeof(word), sizeof(word));
    words_[i].store(word, std::memory_order_relaxed);
  }
}

std::string SharedText::Read() const {
  char copy[sizeof(words_)];
  for (size_t i = 0; i < kWords; ++i) {
    const uint64_t word = words_[i].load(std::memory_order_relaxed);
    std::memcpy(copy + i * sizeof(word), &word, sizeof(word));
  }
  return std::string(copy, strnlen(copy, sizeof(copy)));
}

// The part of one rank: its Member | two details, each with a refusal's text, an encoded agreement
// and the shared bytes | its marks for each rank.
int64_t Board::DetailBytes(int rank_size) {
  return RoundUp(int64_t{kReasonBytes} + Agreement::EncodedBytes(rank_size) + kShareBytes,
                 kLineBytes);
}

int64_t Board::RankBytes(int rank_size) {
  return int64_t{sizeof(Member)} + 2 * DetailBytes(rank_size) + MarkBytes(rank_size);
}

int64_t Board::Bytes(int rank_size) {
  return RoundUp(kPageBytes + rank_size * RankBytes(rank_size), kPageBytes);
}

HeadPlaces Board::heads() const {
  return {RankBase(0) + offsetof(Member, heads), rank_bytes_, sizeof(Member::Head)};
}

std::byte* Board::Detail(int rank, uint64_t step) const {
  const int64_t parity = static_cast<int64_t>(step & 1);
  return RankBase(rank) + sizeof(Member) + parity * detail_bytes_;
}

char* Board::refusal_reason(int rank, uint64_t step) const {
  return reinterpret_cast<char*>(Detail(rank, step));
}

int64_t* Board::agreement(int rank, uint64_t step) const {
  return reinterpret_cast<int64_t*>(Detail(rank, step) + kReasonBytes);
}

std::byte* Board::shared(int rank, uint64_t step) const {
  return Detail(rank, step) + kReasonBytes + agreement_bytes_;
}

std::atomic<uint8_t>& Board::pair_mark(int rank, int peer) const {
  return reinterpret_cast<std::atomic<uint8_t>*>(RankBase(rank) + marks_begin_)[peer];
}

}  // namespace collops::control

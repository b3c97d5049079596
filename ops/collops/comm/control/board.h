#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collops/comm/agreement.h"
#include "collops/comm/control/roll_call.h"
#include "collops/comm/control/segment.h"
#include "collops/comm/control/signals.h"
#include "collops/core/status.h"

namespace collops::control {

// Of a group on one host, or of one of its hosts; and of a group on several hosts.
constexpr int kMaxRanks = 128;
constexpr int kMaxGroupRanks = 4096;
// Two cache lines, because the adjacent-line prefetcher fetches lines in pairs.
constexpr size_t kLineBytes = 128;
constexpr int64_t kPageBytes = 4096;
constexpr size_t kReasonBytes = 1024;
// Bytes that one rank shares in one step of Share(); a larger Share() takes several steps.
constexpr int64_t kShareBytes = 4608;

constexpr int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// What becomes of a group that an older one was enlarged to, once all its ranks have met: the first
// word of any of them counts for all, whichever of them end meanwhile.
enum class Outcome : uint32_t { kOpen = 0, kStays = 1, kDropped = 2 };

// State of the whole group.
struct alignas(kLineBytes) GroupState {
  std::atomic<uint32_t> failed_rank;  // 1 + the first rank that failed; 0: no rank has failed
  std::atomic<uint64_t> roll;         // a RollState: who goes on when the group has ended
  std::atomic<uint32_t> outcome;      // an Outcome

  // Says `wanted`, unless there is a word already; returns the one that counts.
  Outcome Settle(Outcome wanted) {
    auto word = static_cast<uint32_t>(Outcome::kOpen);
    if (outcome.compare_exchange_strong(word, static_cast<uint32_t>(wanted))) return wanted;
    return static_cast<Outcome>(word);
  }
};

// A rank can wait in two lanes at once: in group calls, and in Send and Recv (pairs of ranks).
enum Lane { kGroupLane = 0, kPairLane = 1, kNumLanes = 2 };

// Whether a rank sleeps in a lane: on that lane's doorbell, or on the group lane's.
enum Asleep : uint32_t { kAwake = 0, kInItsLane = 1, kInGroupLane = 2 };

// A short text that other ranks put into their messages. They may read it at any time, so it is
// written word by word: a reader gets old or new words.
class SharedText {
 public:
  // A text that is too long is truncated.
  void Write(const std::string& text);
  std::string Read() const;

 private:
  static constexpr size_t kWords = 8;
  std::atomic<uint64_t> words_[kWords];
};

// Whether a rank has closed the communicator: for good, because it goes on with another group, or
// because the group did not meet as a whole: then it comes to the group's roll call.
enum Leaving : uint32_t { kNotLeft = 0, kClosed = 1, kGoesOn = 2, kHasNotMet = 3 };

// What the watcher of a remote rank's host has reported, or failed to report, about that rank.
enum Ending : uint32_t { kIsThere = 0, kProcessEnded = 1, kCutOff = 2 };

// State that a rank publishes. Only that rank writes it, except `doorbell`. For a remote rank (a
// rank of another host), this host's watcher writes it.
struct alignas(kLineBytes) Member {
  std::atomic<uint64_t> finished;  // the last step in which this rank has read and written all

  // Per lane, an Asleep value. A peer rings the doorbell of a rank that is not kAwake.
  alignas(kLineBytes) std::atomic<uint32_t> asleep[kNumLanes];
  std::atomic<uint32_t> doorbell[kNumLanes];

  alignas(kLineBytes) std::atomic<uint32_t> left;  // a Leaving
  std::atomic<uint32_t> ended;                     // an Ending; used for remote ranks only
  // The step that failed; all earlier steps are complete. 0: the failure was outside a step.
  std::atomic<uint64_t> failed_step;
  std::atomic<int64_t> alive_ms;  // when this rank's watcher was last known to be alive
  // How many calls on streams it made before it closed the communicator; all of them have ended.
  std::atomic<uint64_t> left_after;
  std::atomic<uint32_t> calls_ended;  // those on streams, and it makes no more
  int32_t code;                       // error code; valid if this is failed_rank
  std::atomic<uint32_t> pair_marks;   // how many it has put on the board
  char reason[kReasonBytes];          // why the rank left or failed
  SharedText pair_call;               // what the rank waits for in its pair lane
  RollWords roll;

  // Used for steps whose first signal is not written by the backend.
  struct alignas(kLineBytes) Head {
    SignalHead head;
  } heads[2];
};

// A failed peer's error code; ERROR_PEER_LOST if the number is no error code of this library.
ErrorCode FailureCode(int32_t code);
// Copies a text that a peer wrote, and terminates the copy.
std::string ReadReason(const char* text);
// A text that is too long is truncated.
void WriteReason(const std::string& reason, char* text);

// Copies words that another thread may write or read at the same time: a watcher reads the heads of
// carried steps, which no rank waits to be read.
void StoreWords(const int64_t* from, size_t count, int64_t* board);
void LoadWords(const int64_t* board, size_t count, int64_t* to);

// Addresses in the memory that the ranks of one host share, through which they agree on calls,
// refuse them, fail and leave. A value; points into memory that a Segment owns.
class Board {
 public:
  Board() = default;
  Board(void* base, int rank_size)
      : base_(static_cast<std::byte*>(base)),
        detail_bytes_(DetailBytes(rank_size)),
        rank_bytes_(RankBytes(rank_size)),
        marks_begin_(rank_bytes_ - MarkBytes(rank_size)),
        agreement_bytes_(Agreement::EncodedBytes(rank_size)) {}

  static int64_t Bytes(int rank_size);
  static SegmentShape Shape(int rank_size) {
    return {Bytes(rank_size), {{kPageBytes, RankBytes(rank_size)}}};
  }

  GroupState& group() const { return *reinterpret_cast<GroupState*>(base_); }
  Member& member(int rank) const { return *reinterpret_cast<Member*>(RankBase(rank)); }
  HeadPlaces heads() const;
  // Per rank and parity of the step: the reason of a refusal, the agreement, the shared bytes.
  char* refusal_reason(int rank, uint64_t step) const;
  int64_t* agreement(int rank, uint64_t step) const;
  std::byte* shared(int rank, uint64_t step) const;
  // What a rank has told `peer`: Endpoint::MarkPair().
  std::atomic<uint8_t>& pair_mark(int rank, int peer) const;

 private:
  static int64_t DetailBytes(int rank_size);
  static int64_t MarkBytes(int rank_size) { return RoundUp(rank_size, kLineBytes); }
  static int64_t RankBytes(int rank_size);
  std::byte* RankBase(int rank) const { return base_ + kPageBytes + rank * rank_bytes_; }
  std::byte* Detail(int rank, uint64_t step) const;

  std::byte* base_ = nullptr;
  int64_t detail_bytes_ = 0;
  int64_t rank_bytes_ = 0;
  int64_t marks_begin_ = 0;
  int64_t agreement_bytes_ = 0;
};

}  // namespace collops::control

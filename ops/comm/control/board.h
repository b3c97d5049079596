#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/agreement.h"
#include "comm/control/signal_head.h"
#include "core/status.h"

namespace collops::control {

constexpr int kMaxRanks = 128;
// Two cache lines: the adjacent-line prefetcher would otherwise make neighbours share one.
constexpr size_t kLineBytes = 128;
constexpr int64_t kPageBytes = 4096;
constexpr size_t kReasonBytes = 1024;
// What one rank tells the others in one piece of a Share().
constexpr int64_t kShareBytes = 4608;

constexpr int64_t RoundUp(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// The group as a whole.
struct alignas(kLineBytes) GroupState {
  std::atomic<uint32_t> failed_rank;  // 1 + the first rank that failed; 0: all is well
};

// Two kinds of waits of one rank that other ranks end: of group calls, and of Send and Recv.
enum Lane { kGroupLane = 0, kPairLane = 1, kNumLanes = 2 };

// Whether a rank waits on the doorbell of a lane, or for this lane on that of the group lane.
enum Asleep : uint32_t { kAwake = 0, kInItsLane = 1, kInGroupLane = 2 };

// A short text for the messages of other ranks, who may read it at any time: word by word, so that
// a reader gets old or new ones.
class Note {
 public:
  // Cuts what is too long.
  void Write(const std::string& text);
  std::string Read() const;

 private:
  static constexpr size_t kWords = 8;
  std::atomic<uint64_t> words_[kWords];
};

// What a watcher knows of a rank that says nothing any more.
enum Ending : uint32_t { kIsThere = 0, kProcessEnded = 1, kCutOff = 2 };

// What a rank says about itself; written by that rank alone, but for `doorbell`. On the boards of
// other hosts than its own a watcher writes it instead.
struct alignas(kLineBytes) Member {
  std::atomic<uint64_t> finished;  // the last step in which this rank has read and written all

  // Of each lane: an Asleep; who is not awake is rung after a signal.
  alignas(kLineBytes) std::atomic<uint32_t> asleep[kNumLanes];
  std::atomic<uint32_t> doorbell[kNumLanes];

  alignas(kLineBytes) std::atomic<uint32_t> left;  // it closed the communicator
  std::atomic<uint32_t> ended;                     // of a rank of another host: an Ending
  // The step in which it failed: all before it are whole. 0: it failed outside its steps.
  std::atomic<uint64_t> failed_step;
  std::atomic<int64_t> heard_ms;  // when the watcher that speaks for it was last alive
  int32_t code;                   // why it failed; valid when it is failed_rank
  char reason[kReasonBytes];      // why it left or failed
  Note pair_call;                 // what it waits for in its pair lane

  // Of steps whose first signal is not the backend's own.
  struct alignas(kLineBytes) Head {
    SignalHead head;
  } heads[2];
};

// Of a peer that failed: its code, or ERROR_PEER_LOST for a number that says no failure of ours.
ErrorCode FailureCode(int32_t code);
// A peer's text, copied once and ended by us.
std::string ReadReason(const char* text);
// Cuts what is too long.
void WriteReason(const std::string& reason, char* text);

// Where things lie in the memory that the ranks of one host share, and through which they agree
// on calls, refuse them, fail and leave. A value; points into memory that a Segment owns.
class Board {
 public:
  Board() = default;
  Board(void* base, int rank_size)
      : base_(static_cast<std::byte*>(base)),
        detail_bytes_(DetailBytes(rank_size)),
        rank_bytes_(RankBytes(rank_size)),
        agreement_bytes_(Agreement::EncodedBytes(rank_size)) {}

  static int64_t Bytes(int rank_size);

  GroupState& group() const { return *reinterpret_cast<GroupState*>(base_); }
  Member& member(int rank) const { return *reinterpret_cast<Member*>(RankBase(rank)); }
  HeadPlaces heads() const;
  // By the parity of the step: why the rank refused it, what it agreed to, what it shares in it.
  char* refusal_reason(int rank, uint64_t step) const;
  int64_t* agreement(int rank, uint64_t step) const;
  std::byte* shared(int rank, uint64_t step) const;

 private:
  static int64_t DetailBytes(int rank_size);
  static int64_t RankBytes(int rank_size);
  std::byte* RankBase(int rank) const { return base_ + kPageBytes + rank * rank_bytes_; }
  std::byte* Detail(int rank, uint64_t step) const;

  std::byte* base_ = nullptr;
  int64_t detail_bytes_ = 0;
  int64_t rank_bytes_ = 0;
  int64_t agreement_bytes_ = 0;
};

}  // namespace collops::control

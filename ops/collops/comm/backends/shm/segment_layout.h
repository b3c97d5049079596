#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collops/comm/backends/shm/chunk_counts.h"
#include "collops/comm/backends/shm/pairs/pair_layout.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/signal_head.h"

namespace collops::shm {

using control::kLineBytes;

constexpr int64_t kCallRecordBytes = 16 << 10;
constexpr int64_t kStageBytes = 2 << 20;
constexpr int64_t kChunkBytes = 128 << 10;
constexpr int64_t kLeastChunkBytes = 16 << 10;  // where chunks are shorter for a reason
// Fewer lanes than fill the stage are no longer than this: what is ahead of the readers should
// still be in a cache when they come to it.
constexpr int64_t kMostLaneBytes = 1 << 20;
// An input up to this size is staged before the call record is published, as one in the record is
// written before; with a longer one the peers would wait while they could copy their own.
constexpr int64_t kMostStagedFirst = 64 << 10;

// Where peers find a rank's input in a call.
enum class InputPlace : uint32_t {
  kCallRecord = 0,  // in its call record, behind the head
  kStage = 1,       // chunk by chunk in its stage; all but staged first ones have a signal
  kWindow = 2,      // in its window, in place
};

// The first signal of a call: Control's head, where the input lies, and the input itself if it is
// small, in the same cache lines. Two per rank, by the parity of the step.
struct alignas(kLineBytes) CallRecord {
  control::SignalHead head;  // published last
  uint64_t mails;            // window mails that this rank has sent so far
  InputPlace place;
  uint32_t window_id;
  int64_t window_offset;
  uint32_t tile_window_id;  // in a fused call; 0: none
  uint32_t staged_first;    // not 0: the first chunk of every lane is in the stage already
  alignas(64) std::byte data[kCallRecordBytes];
};
static_assert(offsetof(CallRecord, data) == 64);

// A count in one fused call, with the low 40 bits of the call's step. Never reset: a count of an
// earlier call reads as 0, unless it has not changed for exactly 2^40 steps.
struct alignas(kLineBytes) FusedSignal {
  std::atomic<uint64_t> value;
};

// The layout of the shared memory of shm, which Control's first contact has allocated for
// `rank_size` ranks. A value; points into memory that a Segment owns.
class SegmentLayout {
 public:
  SegmentLayout() = default;
  SegmentLayout(std::byte* base, int rank_size)
      : base_(base), rank_size_(rank_size), rank_bytes_(RankBytes(rank_size)) {}

  static int64_t Bytes(int rank_size) {
    return rank_size * RankBytes(rank_size) + PairLayout::Bytes(rank_size);
  }

  control::HeadPlaces heads() const {
    return {base_ + offsetof(CallRecord, head), rank_bytes_, sizeof(CallRecord)};
  }
  CallRecord& call_record(int rank, uint64_t step) const {
    return reinterpret_cast<CallRecord*>(RankBase(rank))[control::ParityOf(step)];
  }
  std::byte* stage(int rank) const { return RankBase(rank) + rank_bytes_ - kStageBytes; }
  // The memory for messages between two ranks, behind the memory of all ranks.
  std::byte* pairs() const { return base_ + rank_size_ * rank_bytes_; }
  // Chunks that `writer` has staged for `reader`; writer == reader: for all ranks.
  ChunkSignal& produced(int writer, int reader) const { return signals(writer)[reader]; }
  // Chunks of `writer`'s stage that `reader` has read.
  ChunkSignal& consumed(int writer, int reader) const {
    return signals(reader)[rank_size_ + writer];
  }
  // Signals of `rank` in fused calls: 2 * rank_size of the operator's, then the backend's own.
  static int NumFusedSignals(int rank_size) { return 3 * rank_size + 1; }
  FusedSignal& fused_signal(int rank, int index) const {
    return reinterpret_cast<FusedSignal*>(signals(rank) + 2 * rank_size_)[index];
  }

 private:
  // The memory of one rank: 2 call records | produced and consumed signals, one per peer each |
  // signals of fused calls | stage.
  static int64_t RankBytes(int rank_size) {
    const int64_t signals =
        (2 * rank_size + NumFusedSignals(rank_size)) * int64_t{sizeof(ChunkSignal)};
    return control::RoundUp(2 * int64_t{sizeof(CallRecord)} + signals, control::kPageBytes) +
           kStageBytes;
  }
  std::byte* RankBase(int rank) const { return base_ + rank * rank_bytes_; }
  ChunkSignal* signals(int rank) const {
    return reinterpret_cast<ChunkSignal*>(RankBase(rank) + 2 * sizeof(CallRecord));
  }

  std::byte* base_ = nullptr;
  int rank_size_ = 0;
  int64_t rank_bytes_ = 0;
};
static_assert(sizeof(FusedSignal) == sizeof(ChunkSignal));

}  // namespace collops::shm

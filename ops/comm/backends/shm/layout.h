#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/call.h"

namespace collops::shm {

constexpr int kMaxRanks = 128;
// Two cache lines: the adjacent-line prefetcher would otherwise make neighbours share one.
constexpr size_t kLineBytes = 128;
constexpr int64_t kSlotBytes = 16 << 10;
constexpr int64_t kStageBytes = 2 << 20;
constexpr int64_t kChunkBytes = 128 << 10;
constexpr size_t kReasonBytes = 1024;
constexpr int kMaxTerms = 12;  // of what the ranks of a fused call agree on

// The group as a whole.
struct alignas(kLineBytes) GroupState {
  std::atomic<uint32_t> failed_rank;  // 1 + the first rank that failed; 0: all is well
};

// What a rank says about itself; written by that rank alone, but for `doorbell`.
struct alignas(kLineBytes) RankState {
  std::atomic<uint64_t> finished;  // the last call in which this rank has read and written all

  alignas(kLineBytes) std::atomic<uint32_t> asleep;  // it waits on `doorbell`, ring after a signal
  std::atomic<uint32_t> doorbell;

  alignas(kLineBytes) std::atomic<uint32_t> left;  // it closed the communicator
  // The call in which it failed: all before it are whole. 0: it failed outside its calls.
  std::atomic<uint64_t> failed_call;
  int32_t code;               // why it failed; valid when it is failed_rank
  char reason[kReasonBytes];  // why it left or failed
};

// Where peers find a rank's input in a call.
enum class Source : int32_t {
  kSlot = 0,    // in its slot, written before the first signal
  kStage = 1,   // chunk by chunk in its stage, each with a signal
  kWindow = 2,  // in its window, in place
};

// The first signal of a call: who calls what. One per rank and parity of the sequence: a rank can
// be one call ahead of a reader, never two, because every call waits for every rank's signal.
struct alignas(kLineBytes) Announcement {
  std::atomic<uint64_t> sequence;  // released last
  uint64_t signature;              // of all that the ranks must agree on
  int64_t window_offset;
  uint64_t mails;  // mails this rank has sent so far
  CallKind kind;
  DType dtype;
  ReduceOp op;
  int32_t root;
  Source source;
  uint32_t window_id;
  uint32_t tile_window_id;  // of a fused call; 0: none
  int32_t num_readers;
  int32_t num_combiners;
  int32_t first_reader;  // of the ranks that read each other, whose lists must be equal
  int32_t first_combiner;
  int32_t refusal;  // an ErrorCode: this rank takes part with a refusal; reason in the detail
  Shape x_shape;
  CallLabel label;
};

// A counter of chunks from one rank to another, never reset.
struct alignas(kLineBytes) ChunkSignal {
  std::atomic<uint64_t> count;
};

// A peer's text, copied once and ended by us.
std::string ReadReason(const char* text);

// A count of one fused call: the call's number and, within it, how far the rank has come. Never
// reset: a count of an earlier call reads as 0.
struct alignas(kLineBytes) FusedSignal {
  std::atomic<uint64_t> value;
};

// Where things lie in the segment of `rank_size` ranks. A value; points into memory that a Segment
// owns.
class Layout {
 public:
  Layout() = default;
  Layout(void* base, int rank_size) : base_(static_cast<std::byte*>(base)), rank_size_(rank_size) {}

  static int64_t Bytes(int rank_size);

  GroupState& group() const { return *reinterpret_cast<GroupState*>(base_); }
  RankState& rank(int rank) const;
  Announcement& announcement(int rank, uint64_t sequence) const;
  // rank_size counts, then rank_size displacements, of the announced call.
  int64_t* counts(int rank, uint64_t sequence) const;
  // kMaxTerms numbers of the announced fused call.
  int64_t* terms(int rank, uint64_t sequence) const;
  char* refusal_reason(int rank, uint64_t sequence) const;
  std::byte* slot(int rank, uint64_t sequence) const;
  std::byte* stage(int rank) const;
  // Chunks that `writer` has staged for `reader`; writer == reader: for everybody.
  ChunkSignal& produced(int writer, int reader) const;
  // Chunks of `writer`'s stage that `reader` has read.
  ChunkSignal& consumed(int writer, int reader) const;
  // What `rank` signals in fused calls: 2 * rank_size of the operator's, then the backend's own.
  static int NumFusedSignals(int rank_size) { return 3 * rank_size + 1; }
  FusedSignal& fused_signal(int rank, int index) const;

 private:
  static int64_t DetailBytes(int rank_size);
  static int64_t RankBytes(int rank_size);
  std::byte* RankBase(int rank) const;
  std::byte* Detail(int rank, uint64_t sequence) const;

  std::byte* base_ = nullptr;
  int rank_size_ = 0;
};

}  // namespace collops::shm

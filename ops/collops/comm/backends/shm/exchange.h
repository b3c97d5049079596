#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/backends/shm/pair_wire.h"
#include "collops/comm/backends/shm/peer_copy.h"
#include "collops/comm/backends/shm/windows.h"
#include "collops/comm/call.h"
#include "collops/comm/control/board.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/signals.h"
#include "collops/kernels/copy.h"

namespace collops::shm {

using control::kLineBytes;

constexpr int64_t kCallRecordBytes = 16 << 10;
constexpr int64_t kStageBytes = 2 << 20;
constexpr int64_t kChunkBytes = 128 << 10;
constexpr int64_t kLeastChunkBytes = 16 << 10;  // where chunks are shorter for a reason
// Fewer lanes than fill the stage are no longer than this: what is ahead of the readers should
// still be in a cache when they come to it.
constexpr int64_t kMostLaneBytes = 1 << 20;
// Lanes of so few bytes lie at so many places in turn.
constexpr int64_t kMostRotatedBytes = 80 << 10;
constexpr int64_t kRotated = 4;
// An input up to this size is staged before the call record is published, as one in the record is
// written before; with a longer one the peers would wait while they could copy their own.
constexpr int64_t kMostStagedFirst = 64 << 10;

// Whose chunks a lane of a stage has: those of one reader, or the same for all ranks.
enum Readers { kOneReader, kAllRanks };

// Counts of chunks from one rank to another, by the lane's readers, which one rank writes, as in a
// ring of the pair wire.
struct alignas(kLineBytes) ChunkSignal {
  std::atomic<uint64_t> counts[2];
};

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

  static int64_t Bytes(int rank_size) { return Shape(rank_size).bytes; }
  static control::SegmentShape Shape(int rank_size) {
    const int64_t rank_bytes = RankBytes(rank_size);
    control::SegmentShape shape(rank_size * rank_bytes, {{0, rank_bytes}});
    shape.Append(PairLayout::Shape(rank_size));
    return shape;
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
  // Chunks that `writer` has staged for `reader`, or for all ranks: then it is one line, however
  // many they are.
  std::atomic<uint64_t>& produced(int writer, int reader, Readers readers) const {
    return signals(writer)[readers == kAllRanks ? writer : reader].counts[readers];
  }
  // Chunks of `writer`'s stage that `reader` has read.
  std::atomic<uint64_t>& consumed(int writer, int reader, Readers readers) const {
    return signals(reader)[rank_size_ + writer].counts[readers];
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

// The elements of a call's output that no block covers.
template <typename Call>
void ZeroGaps(const Call& call) {
  const int64_t item = SizeOf(call.dtype);
  for (int64_t i = 0; i < call.num_gaps; ++i) {
    const Range& gap = call.gaps[i];
    kernels::Zero(static_cast<std::byte*>(call.output) + gap.begin * item,
                  (gap.end - gap.begin) * item);
  }
}

// The bytes of this rank's input that its peers read.
struct SharedInput {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
  bool changes = false;  // before End(): peers read a copy
};

// How inputs reach the other ranks in one step. This rank puts its input into its call record, its
// stage or its window, and then publishes the record with its head; a peer's record says where the
// peer's input lies. A rank moves data by its own plan only; numbers that a peer wrote are copied
// once and checked before they are used. One thread at a time. Waits where Step does.
class Exchange {
 public:
  Exchange(control::Control* control, WindowTable* windows);

  // Announces the call. `input` must not change until End(), unless it says so.
  // `stage_first` copies the first chunk of every lane into the stage (StageFirst), if it may.
  // What a caller can work out by itself it works out before AwaitAll(), while the heads travel.
  template <typename StageFirst>
  Status Announce(const Agreement& agreement, const SharedInput& input, StageFirst&& stage_first) {
    COLLOPS_RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
    CallRecord& mine = layout_.call_record(endpoint_->rank(), step_->number());
    COLLOPS_RETURN_IF_ERROR(Place(input, 0, &mine));
    PublishStaged(input, &mine, stage_first);
    return Ok();
  }
  // As Announce(), for a call with different bytes for each peer: `fill` writes short slices into
  // the call record, `input` holds the long ones.
  template <typename Fill, typename StageFirst>
  Status AnnounceCells(const Agreement& agreement, const SharedInput& input, Fill&& fill,
                       StageFirst&& stage_first) {
    COLLOPS_RETURN_IF_ERROR(step_->Begin(agreement, control_->timeout_s()));
    CallRecord& mine = layout_.call_record(endpoint_->rank(), step_->number());
    COLLOPS_RETURN_IF_ERROR(PlaceLong(input, 0, &mine));
    fill(mine.data);
    PublishStaged(input, &mine, stage_first);
    return Ok();
  }
  // As Announce(), for a call whose body reads the peers' records as they arrive, and stages
  // itself. `tile_window`: this rank's window for tiles, 0: none.
  Status Start(const Agreement& agreement, const SharedInput& input, uint32_t tile_window);
  // Reads the records that have arrived since.
  Status ReadArrived();
  // Waits until every rank has announced the same.
  Status AwaitAll();

  // How this rank's own input reaches its peers in this call.
  InputPlace own_place() const { return own_place_; }
  // Whether this rank has staged the first chunk of every lane, and whether a peer's record says
  // so: then there is no signal to wait for.
  bool staged_first() const { return staged_first_; }
  bool HasStagedFirst(int rank) const { return peers_[static_cast<size_t>(rank)].staged_first; }
  // The address of a peer's input of `bytes`; null: it comes through the peer's stage.
  Status PeerInput(int rank, int64_t bytes, const std::byte** data);
  // The data in a peer's call record, and the address of `bytes` from `begin` on in the long input
  // that the peer announced; null: they come through its stage.
  const std::byte* PeerCells(int rank) const {
    return layout_.call_record(rank, step_->number()).data;
  }
  Status PeerPart(int rank, int64_t begin, int64_t bytes, const std::byte** data);
  // The tiles of a peer that has arrived, in the window that it announced.
  Status PeerTiles(int rank, int64_t bytes, const std::byte** data);

  // This rank has finished reading. Waits for the peers only if they read its window in place.
  Status End() { return own_place_ == InputPlace::kWindow ? step_->EndTogether() : step_->End(); }

  int rank() const { return endpoint_->rank(); }
  int size() const { return endpoint_->size(); }
  control::Step& step() { return *step_; }
  WindowMailbox& mailbox() { return mailbox_; }
  // For all that this rank writes for its peers.
  PeerCopy& peer_copy() { return peer_copy_; }
  control::Endpoint& endpoint() const { return *endpoint_; }
  const SegmentLayout& layout() const { return layout_; }

 private:
  struct PeerCall {
    InputPlace place = InputPlace::kCallRecord;
    WindowSpot spot;
    uint32_t tile_window = 0;
    bool staged_first = false;
    // The windows that were found, mapped until the peer's next call whatever its mails say.
    bool keeps = false;
    control::Segment input;
    control::Segment tiles;
  };

  Status Place(const SharedInput& input, uint32_t tile_window, CallRecord* mine);
  // Place() for an input that does not fit into a call record, or is empty.
  Status PlaceLong(const SharedInput& input, uint32_t tile_window, CallRecord* mine);
  // While peers may still read what the previous call staged, nothing is staged here.
  template <typename StageFirst>
  void PublishStaged(const SharedInput& input, CallRecord* mine, StageFirst&& stage_first) {
    staged_first_ = own_place_ == InputPlace::kStage && step_->PreviousFinished();
    const bool before = staged_first_ && input.bytes <= kMostStagedFirst;
    mine->staged_first = before ? 1 : 0;
    if (before) stage_first();
    step_->Publish();
    if (staged_first_ && !before) stage_first();
  }
  Status TakeCallRecord(int rank);
  const std::byte* InWindow(int rank, const WindowSpot& spot, int64_t bytes,
                            control::Segment* window);
  Status NotShared(int rank, const std::string& what, const WindowSpot& where) const;

  control::Control* control_;
  control::Endpoint* endpoint_;
  control::Step* step_;
  WindowTable* windows_;
  SegmentLayout layout_;
  WindowMailbox mailbox_;
  PeerCopy peer_copy_;
  std::vector<PeerCall> peers_;
  InputPlace own_place_ = InputPlace::kCallRecord;
  bool staged_first_ = false;
};

// How one call cuts a rank's stage into lanes, each a ring of chunks. AllGatherV has one lane that
// all peers read, ReduceScatterV one lane per peer. Equal on every rank.
struct StageShape {
  int64_t lane_bytes;
  int64_t chunk_bytes;
  Readers readers;
  int64_t num_slots() const { return lane_bytes / chunk_bytes; }
  int64_t NumChunks(int64_t bytes) const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  // The slot of a lane's first chunk in this step. Few bytes go to other slots in every step: lines
  // that the reader still has in its first-level cache take longer to write again.
  int64_t FirstSlot(int64_t bytes, uint64_t step) const {
    const int64_t chunks = std::max<int64_t>(NumChunks(bytes), 1);
    const int64_t turns = std::min(num_slots() / chunks, kRotated);
    if (bytes > kMostRotatedBytes || turns < 2) return 0;
    return static_cast<int64_t>(step % static_cast<uint64_t>(turns)) * chunks;
  }

  static constexpr StageShape OneLane() { return {kMostLaneBytes, kChunkBytes, kAllRanks}; }
  static StageShape LanePerPeer(int rank_size);
  // This shape for a call in which one rank has `largest_bytes` of all. If that is most of them,
  // the other ranks have little to do but wait for its chunks, and chunks are shorter.
  StageShape ForSkew(int64_t largest_bytes, int64_t all_bytes) const;
  // Those lanes are numbered by reader, without the writer itself.
  static int Lane(int writer, int reader) { return reader < writer ? reader : reader - 1; }
};

// Copies the first chunk of a lane of this rank's stage, before it is known that all ranks agree.
void StageFirst(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes);

// Writes one lane of this rank's stage, chunk by chunk, at most the lane's size ahead of its
// readers. Lives during one call: the peers have announced it, so they have finished reading the
// chunks of earlier calls.
class StageWriter {
 public:
  // `reader`: of a lane that not all ranks read.
  StageWriter(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes,
              int reader = 0);

  bool Done() const { return written_ == num_chunks_; }
  // All bytes before this one have been written, and maybe bytes after it.
  int64_t end() const { return std::min(bytes_, written_ * shape_.chunk_bytes); }
  // Where the chunk begins that was written last.
  int64_t last_begin() const { return (written_ - 1) * shape_.chunk_bytes; }
  bool CanWrite() const;
  void WriteChunk();

 private:
  void CountChunk();
  // Whether `holds` is true of every reader.
  template <typename Holds>
  bool AllReaders(Holds&& holds) const {
    if (shape_.readers == kOneReader) return holds(reader_);
    for (int r = 0; r < exchange_->size(); ++r) {
      if (r != exchange_->rank() && !holds(r)) return false;
    }
    return true;
  }

  Exchange* exchange_;
  StageShape shape_;
  std::byte* lane_;
  const std::byte* source_;
  int64_t bytes_;
  int reader_;
  int64_t num_chunks_;
  int64_t first_slot_;
  int64_t written_ = 0;
};

// Reads the lane that a peer writes for this rank. Lives during one call.
class StageReader {
 public:
  StageReader(Exchange* exchange, StageShape shape, int lane, int writer, int64_t bytes);

  int writer() const { return writer_; }
  bool Done() const { return read_ == num_chunks_; }
  bool CanRead() const;
  // The address of the next chunk, and its range of the whole.
  const std::byte* Chunk() const;
  int64_t begin() const { return read_ * shape_.chunk_bytes; }
  int64_t end() const { return std::min(bytes_, begin() + shape_.chunk_bytes); }
  void Release();

 private:
  Exchange* exchange_;
  StageShape shape_;
  const std::byte* lane_;
  int writer_;
  int64_t bytes_;
  int64_t num_chunks_;
  int64_t first_slot_;
  uint64_t base_;  // chunks read from this writer in earlier calls
  int64_t known_;  // chunks that need no signal
  int64_t read_ = 0;
};

// Writes chunks to this rank's stage when there is room, and reads the peers' chunks as they
// arrive, which `take` gets. It never waits for only one of both, so full stages cannot block each
// other. `written` gets each writer whose chunk has just been written, while caches still have it.
template <typename Take, typename Written>
Status MoveStages(Exchange* exchange, std::vector<StageWriter>* writers,
                  std::vector<StageReader>* readers, const Take& take, const Written& written) {
  const auto is_done = [](const auto& part) { return part.Done(); };
  const auto can_move = [&] {
    return std::any_of(writers->begin(), writers->end(),
                       [](const auto& w) { return w.CanWrite(); }) ||
           std::any_of(readers->begin(), readers->end(), [](const auto& r) { return r.CanRead(); });
  };
  while (!std::all_of(writers->begin(), writers->end(), is_done) ||
         !std::all_of(readers->begin(), readers->end(), is_done)) {
    COLLOPS_RETURN_IF_ERROR(exchange->step().Until(can_move));
    // All that there is room for, because peers may be waiting for it.
    for (StageWriter& writer : *writers) {
      while (writer.CanWrite()) {
        writer.WriteChunk();
        written(writer);
      }
    }
    for (StageReader& reader : *readers) {
      if (!reader.CanRead()) continue;
      take(reader);
      reader.Release();
    }
  }
  return Ok();
}

}  // namespace collops::shm

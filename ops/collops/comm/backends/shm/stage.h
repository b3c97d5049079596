#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "collops/comm/backends/shm/exchange.h"

namespace collops::shm {

// How one call cuts a rank's stage into lanes, each a ring of chunks. AllGatherV has one lane that
// all peers read, ReduceScatterV one lane per peer. Equal on every rank.
struct StageShape {
  int64_t lane_bytes;
  int64_t chunk_bytes;
  int64_t num_slots() const { return lane_bytes / chunk_bytes; }

  static StageShape OneLane() { return {kMostLaneBytes, kChunkBytes}; }
  static StageShape LanePerPeer(int rank_size);
  // This shape for a call in which one rank has `largest_bytes` of all. If that is most of them,
  // the other ranks have little to do but wait for its chunks, and chunks are shorter.
  StageShape ForSkew(int64_t largest_bytes, int64_t all_bytes) const;
  // Those lanes are numbered by reader, without the writer itself.
  static int Lane(int writer, int reader) { return reader < writer ? reader : reader - 1; }
};

inline int64_t NumChunks(int64_t bytes, int64_t chunk_bytes) {
  return (bytes + chunk_bytes - 1) / chunk_bytes;
}

// Copies the first chunk of a lane of this rank's stage, before it is known that all ranks agree.
void StageFirst(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes);

// Writes one lane of this rank's stage, chunk by chunk, at most the lane's size ahead of its
// readers. Lives during one call: the peers have announced it, so they have finished reading the
// chunks of earlier calls.
class StageWriter {
 public:
  // The readers are the ranks [first_reader, end_reader) except this one.
  StageWriter(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes,
              int first_reader, int end_reader);

  bool Done() const { return written_ == num_chunks_; }
  // All bytes before this one have been written, and maybe bytes after it.
  int64_t end() const { return std::min(bytes_, written_ * shape_.chunk_bytes); }
  // Where the chunk begins that was written last.
  int64_t last_begin() const { return (written_ - 1) * shape_.chunk_bytes; }
  bool CanWrite() const;
  void WriteChunk();

 private:
  void CountChunk();
  template <typename Visit>
  void ForEachReader(Visit&& visit) const {
    for (int r = first_reader_; r < end_reader_; ++r) {
      if (r != exchange_->rank()) visit(r);
    }
  }

  Exchange* exchange_;
  StageShape shape_;
  std::byte* lane_;
  const std::byte* source_;
  int64_t bytes_;
  int first_reader_;
  int end_reader_;
  int64_t num_chunks_;
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

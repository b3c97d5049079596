#include "collops/comm/backends/shm/stage.h"

#include "collops/kernels/copy/copy.h"

namespace collops::shm {
namespace {

constexpr int64_t kPageBytes = 4096;

constexpr int64_t RoundDown(int64_t bytes, int64_t unit) {
  return bytes / unit * unit;
}

}  // namespace

StageShape StageShape::LanePerPeer(int rank_size) {
  const int64_t lanes = std::max(rank_size - 1, 1);
  const int64_t lane_bytes = RoundDown(std::min(kStageBytes / lanes, kMostLaneBytes), kPageBytes);
  return {lane_bytes, std::min(kChunkBytes, RoundDown(lane_bytes / 2, kPageBytes))};
}

StageShape StageShape::ForSkew(int64_t largest_bytes, int64_t all_bytes) const {
  if (largest_bytes <= all_bytes - all_bytes / 4) return *this;
  const int64_t eighth = RoundDown(largest_bytes / 8, kPageBytes);
  return {lane_bytes, std::min(chunk_bytes, std::max(eighth, kLeastChunkBytes))};
}

void StageFirst(Exchange* exchange, StageShape shape, int lane, const void* source, int64_t bytes) {
  exchange->peer_copy().Copy(exchange->layout().stage(exchange->rank()) + lane * shape.lane_bytes,
                             source, std::min(shape.chunk_bytes, bytes));
}

// The counters are never reset: a call continues from the earlier calls' counts. The readers have
// read all earlier chunks, so their counts equal the writer's own.
StageWriter::StageWriter(Exchange* exchange, StageShape shape, int lane, const void* source,
                         int64_t bytes, int first_reader, int end_reader)
    : exchange_(exchange),
      shape_(shape),
      lane_(exchange->layout().stage(exchange->rank()) + lane * shape.lane_bytes),
      source_(static_cast<const std::byte*>(source)),
      bytes_(bytes),
      first_reader_(first_reader),
      end_reader_(end_reader),
      num_chunks_(NumChunks(bytes, shape.chunk_bytes)) {
  if (exchange->staged_first() && num_chunks_ > 0) CountChunk();
}

bool StageWriter::CanWrite() const {
  if (Done()) return false;
  bool room = true;
  ForEachReader([&](int r) {
    const SegmentLayout& layout = exchange_->layout();
    const uint64_t unread =
        NumUnread(layout.produced(exchange_->rank(), r), layout.consumed(exchange_->rank(), r));
    room = room && unread < static_cast<uint64_t>(shape_.num_slots());
  });
  return room;
}

void StageWriter::WriteChunk() {
  const int64_t begin = written_ * shape_.chunk_bytes;
  const int64_t slot = SlotOf(written_, shape_.num_slots());
  exchange_->peer_copy().Copy(lane_ + slot * shape_.chunk_bytes, source_ + begin,
                              std::min(shape_.chunk_bytes, bytes_ - begin));
  CountChunk();
}

void StageWriter::CountChunk() {
  ++written_;
  ForEachReader([&](int r) {
    CountWritten(&exchange_->layout().produced(exchange_->rank(), r));
    exchange_->endpoint().Ring(r);
  });
}

StageReader::StageReader(Exchange* exchange, StageShape shape, int lane, int writer, int64_t bytes)
    : exchange_(exchange),
      shape_(shape),
      lane_(exchange->layout().stage(writer) + lane * shape.lane_bytes),
      writer_(writer),
      bytes_(bytes),
      num_chunks_(NumChunks(bytes, shape.chunk_bytes)),
      base_(exchange->layout().consumed(writer, exchange->rank()).Own()),
      known_(exchange->HasStagedFirst(writer) ? 1 : 0) {}

bool StageReader::CanRead() const {
  if (Done()) return false;
  if (read_ < known_) return true;
  return HasChunk(exchange_->layout().produced(writer_, exchange_->rank()), base_, read_);
}

const std::byte* StageReader::Chunk() const {
  return lane_ + SlotOf(read_, shape_.num_slots()) * shape_.chunk_bytes;
}

void StageReader::Release() {
  ++read_;
  CountRead(&exchange_->layout().consumed(writer_, exchange_->rank()), base_, read_);
  exchange_->endpoint().Ring(writer_);
}

}  // namespace collops::shm

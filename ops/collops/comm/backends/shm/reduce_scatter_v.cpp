#include "collops/comm/backends/shm/reduce_scatter_v.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "collops/comm/backends/shm/stage.h"
#include "collops/kernels/copy/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::shm {
namespace {

// The smallest range that holds every slice.
Range Hull(const ReduceScatterVCall& call, int size) {
  Range hull{std::numeric_limits<int64_t>::max(), 0};
  for (int r = 0; r < size; ++r) {
    if (call.send_counts[r] == 0) continue;
    hull.begin = std::min(hull.begin, call.sdispls[r]);
    hull.end = std::max(hull.end, call.sdispls[r] + call.send_counts[r]);
  }
  return hull.end == 0 ? Range{0, 0} : hull;
}

// One rank's part in one call.
class Reduction {
 public:
  Reduction(Exchange* exchange, const ReduceScatterVCall& call)
      : exchange_(exchange),
        call_(call),
        size_(exchange->size()),
        element_bytes_(SizeOf(call.dtype)),
        hull_(Hull(call, size_)),
        all_bytes_(std::accumulate(call.send_counts, call.send_counts + size_, int64_t{0}) *
                   element_bytes_),
        shape_(StageShape::LanePerPeer(size_).ForSkew(
            *std::max_element(call.send_counts, call.send_counts + size_) * element_bytes_,
            all_bytes_)) {}

  Status Begin();
  Status Prepare();
  Status Run();

 private:
  const std::byte* X() const { return static_cast<const std::byte*>(call_.x); }
  const std::byte* Slice(int rank) const { return X() + call_.sdispls[rank] * element_bytes_; }
  int64_t SliceBytes(int rank) const { return call_.send_counts[rank] * element_bytes_; }
  Input PeersInput() const {
    return {X() + hull_.begin * element_bytes_, (hull_.end - hull_.begin) * element_bytes_};
  }

  // A rank whose slices for its peers are small writes them into its call record, one after the
  // other in the order of the ranks, without the slice that no peer reads. All others announce the
  // hull, which may be small too, because slices may overlap.
  bool IsInRecord(int writer) const { return all_bytes_ - SliceBytes(writer) <= kCallRecordBytes; }
  int64_t RecordOffset(int writer, int reader) const {
    int64_t bytes = 0;
    for (int r = 0; r < reader; ++r) bytes += r == writer ? 0 : SliceBytes(r);
    return bytes;
  }

  bool CanReduce() const;
  void ReduceChunk();

  Exchange* exchange_;
  const ReduceScatterVCall& call_;
  int size_;
  int64_t element_bytes_;
  Range hull_;
  int64_t all_bytes_;
  StageShape shape_;
  const std::byte* slices_[control::kMaxRanks];  // this rank's slice on every rank; null: staged
  const void* slice_chunks_[control::kMaxRanks];
  std::vector<StageWriter> writers_;
  std::vector<StageReader> readers_;
  int64_t reduced_bytes_ = 0;
};

Status Reduction::Begin() {
  const int rank = exchange_->rank();
  if (!IsInRecord(rank)) {
    return exchange_->Begin(*call_.agreement, PeersInput(), [&] {
      for (int r = 0; r < size_; ++r) {
        if (r == rank) continue;
        StageFirst(exchange_, shape_, StageShape::Lane(rank, r), Slice(r), SliceBytes(r));
      }
    });
  }
  const auto fill = [&](std::byte* record) {
    for (int r = 0; r < size_; ++r) {
      if (r == rank) continue;
      exchange_->peer_copy().Copy(record, Slice(r), SliceBytes(r));
      record += SliceBytes(r);
    }
  };
  return exchange_->BeginCells(*call_.agreement, Input{}, fill, [] {});
}

Status Reduction::Prepare() {
  const int rank = exchange_->rank();
  const int64_t slice_offset = (call_.sdispls[rank] - hull_.begin) * element_bytes_;
  for (int r = 0; r < size_ && SliceBytes(rank) > 0; ++r) {
    const std::byte* data = nullptr;
    if (r == rank) {
      slices_[r] = Slice(rank);
    } else if (IsInRecord(r)) {
      slices_[r] = exchange_->PeerCells(r) + RecordOffset(r, rank);
    } else {
      COLLOPS_RETURN_IF_ERROR(exchange_->PeerInput(r, PeersInput().bytes, &data));
      slices_[r] = data == nullptr ? nullptr : data + slice_offset;
    }
    if (slices_[r] == nullptr) {
      readers_.emplace_back(exchange_, shape_, StageShape::Lane(r, rank), r, SliceBytes(rank));
    }
  }
  if (exchange_->own_place() != InputPlace::kStage) return Ok();
  for (int i = 1; i < size_; ++i) {
    const int reader = (rank + i) % size_;
    writers_.emplace_back(exchange_, shape_, StageShape::Lane(rank, reader), Slice(reader),
                          SliceBytes(reader), reader, reader + 1);
  }
  return Ok();
}

bool Reduction::CanReduce() const {
  return reduced_bytes_ < SliceBytes(exchange_->rank()) &&
         std::all_of(readers_.begin(), readers_.end(), [](const auto& r) { return r.CanRead(); });
}

// Reduces the next chunk of all slices; the whole slices if none goes through a stage.
void Reduction::ReduceChunk() {
  const int64_t left_bytes = SliceBytes(exchange_->rank()) - reduced_bytes_;
  const bool staged = !readers_.empty() || !writers_.empty();
  const int64_t bytes = staged ? std::min(shape_.chunk_bytes, left_bytes) : left_bytes;
  auto reader = readers_.begin();
  for (int r = 0; r < size_; ++r) {
    const std::byte* const slice = slices_[r];
    slice_chunks_[r] = slice != nullptr ? slice + reduced_bytes_ : (reader++)->Chunk();
  }
  kernels::Reduce(static_cast<std::byte*>(call_.output) + reduced_bytes_, slice_chunks_, size_,
                  bytes / element_bytes_, call_.dtype, call_.op, PeersInput().bytes);
  for (StageReader& used : readers_) used.Release();
  reduced_bytes_ += bytes;
}

Status Reduction::Run() {
  const int64_t slice_bytes = SliceBytes(exchange_->rank());
  const auto all_written = [&] {
    return std::all_of(writers_.begin(), writers_.end(), [](const auto& w) { return w.Done(); });
  };
  const auto can_move = [&] {
    return CanReduce() || std::any_of(writers_.begin(), writers_.end(),
                                      [](const auto& w) { return w.CanWrite(); });
  };
  const bool staged = !readers_.empty() || !writers_.empty();
  if (!staged && slice_bytes > 0) ReduceChunk();
  while (staged && (reduced_bytes_ < slice_bytes || !all_written())) {
    COLLOPS_RETURN_IF_ERROR(exchange_->step().Until(can_move));
    for (StageWriter& writer : writers_) {  // before reading: peers may be waiting for it
      while (writer.CanWrite()) writer.WriteChunk();
    }
    if (CanReduce()) ReduceChunk();
  }
  kernels::Zero(static_cast<std::byte*>(call_.output) + slice_bytes,
                call_.output_count * element_bytes_ - slice_bytes);
  return Ok();
}

}  // namespace

Status ReduceScatterV(Exchange* exchange, const ReduceScatterVCall& call) {
  Reduction reduction(exchange, call);
  COLLOPS_RETURN_IF_ERROR(reduction.Begin());
  COLLOPS_RETURN_IF_ERROR(reduction.Prepare());
  COLLOPS_RETURN_IF_ERROR(reduction.Run());
  return exchange->End();
}

}  // namespace collops::shm

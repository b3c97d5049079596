#include "comm/backends/shm/reduce_scatter_v.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "comm/backends/shm/stage.h"
#include "kernels/copy/copy.h"
#include "kernels/reduce/reduce.h"

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
        shape_(StageShape::LanePerPeer(size_)),
        hull_(Hull(call, size_)),
        slices_(static_cast<size_t>(size_)) {}

  Input PeersInput() const {
    return {X() + hull_.begin * element_bytes_, (hull_.end - hull_.begin) * element_bytes_};
  }

  Status Prepare();
  Status Run();

 private:
  const std::byte* X() const { return static_cast<const std::byte*>(call_.x); }
  int64_t SliceBytes(int rank) const { return call_.send_counts[rank] * element_bytes_; }

  bool CanReduce() const;
  void ReduceChunk();

  Exchange* exchange_;
  const ReduceScatterVCall& call_;
  int size_;
  int64_t element_bytes_;
  StageShape shape_;
  Range hull_;
  std::vector<const std::byte*> slices_;  // this rank's slice on every rank; null: staged
  std::vector<StageWriter> writers_;
  std::vector<StageReader> readers_;
  std::vector<const void*> slice_chunks_;
  int64_t reduced_bytes_ = 0;
};

Status Reduction::Prepare() {
  const int rank = exchange_->rank();
  const int64_t slice_offset = (call_.sdispls[rank] - hull_.begin) * element_bytes_;
  for (int r = 0; r < size_ && SliceBytes(rank) > 0; ++r) {
    const std::byte* data = PeersInput().data;
    if (r != rank) RETURN_IF_ERROR(exchange_->PeerInput(r, PeersInput().bytes, &data));
    if (data != nullptr) {
      slices_[static_cast<size_t>(r)] = data + slice_offset;
    } else {
      readers_.emplace_back(exchange_, shape_, StageShape::Lane(r, rank), r, SliceBytes(rank));
    }
  }
  if (exchange_->own_place() != InputPlace::kStage) return Ok();
  for (int i = 1; i < size_; ++i) {
    const int reader = (rank + i) % size_;
    writers_.emplace_back(exchange_, shape_, StageShape::Lane(rank, reader),
                          X() + call_.sdispls[reader] * element_bytes_, SliceBytes(reader), reader,
                          reader + 1);
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
  slice_chunks_.clear();
  auto reader = readers_.begin();
  for (const std::byte* slice : slices_) {
    slice_chunks_.push_back(slice != nullptr ? slice + reduced_bytes_ : (reader++)->Chunk());
  }
  kernels::Reduce(static_cast<std::byte*>(call_.output) + reduced_bytes_, slice_chunks_.data(),
                  size_, bytes / element_bytes_, call_.dtype, call_.op, PeersInput().bytes);
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
  while (reduced_bytes_ < slice_bytes || !all_written()) {
    RETURN_IF_ERROR(exchange_->step().Until(can_move));
    for (StageWriter& writer : writers_) {
      if (writer.CanWrite()) writer.WriteChunk();
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
  RETURN_IF_ERROR(exchange->Begin(*call.agreement, reduction.PeersInput()));
  RETURN_IF_ERROR(reduction.Prepare());
  RETURN_IF_ERROR(reduction.Run());
  return exchange->End();
}

}  // namespace collops::shm

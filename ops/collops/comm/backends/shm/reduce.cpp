// ReduceScatterV, and AllReduce in one step: every rank adds up what it needs of all inputs, in
// rank order and where they lie.

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/shm/exchange.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::shm {
namespace {

// One rank's sum of one slice of every rank, chunk by chunk if some go through a stage.
class SliceSum {
 public:
  SliceSum(Exchange* exchange, StageShape shape, DType dtype, ReduceOp op, int64_t bytes)
      : exchange_(exchange), shape_(shape), dtype_(dtype), op_(op), bytes_(bytes) {}

  // Where the slice of a rank lies; null for a peer's: it comes through a lane of its stage.
  void SetSlice(int rank, const std::byte* data, int lane) {
    slices_[rank] = data;
    if (data != nullptr || rank == exchange_->rank()) return;
    readers_.emplace_back(exchange_, shape_, lane, rank, bytes_);
  }
  // What this rank stages for its peers meanwhile.
  std::vector<StageWriter>& writers() { return writers_; }
  // `overwrites`: the output may lie where a writer reads. `all_bytes`: of one rank's whole input.
  Status Run(void* output, bool overwrites, int64_t all_bytes);

 private:
  bool CanReduce(bool overwrites) const {
    const auto has_written = [&](const auto& w) { return w.end() > reduced_bytes_; };
    return reduced_bytes_ < bytes_ &&
           (!overwrites || std::all_of(writers_.begin(), writers_.end(), has_written)) &&
           std::all_of(readers_.begin(), readers_.end(), [](const auto& r) { return r.CanRead(); });
  }
  void ReduceChunk(std::byte* output, int64_t bytes, int64_t all_bytes);

  Exchange* exchange_;
  StageShape shape_;
  DType dtype_;
  ReduceOp op_;
  int64_t bytes_;  // of a slice
  const std::byte* slices_[control::kMaxRanks];
  const void* chunks_[control::kMaxRanks];
  std::vector<StageWriter> writers_;
  std::vector<StageReader> readers_;
  int64_t reduced_bytes_ = 0;
};

void SliceSum::ReduceChunk(std::byte* output, int64_t bytes, int64_t all_bytes) {
  auto reader = readers_.begin();
  for (int r = 0; r < exchange_->size(); ++r) {
    chunks_[r] = slices_[r] != nullptr ? slices_[r] + reduced_bytes_ : (reader++)->Chunk();
  }
  kernels::Reduce(output + reduced_bytes_, chunks_, exchange_->size(), bytes / SizeOf(dtype_),
                  dtype_, op_, all_bytes);
  for (StageReader& used : readers_) used.Release();
  reduced_bytes_ += bytes;
}

Status SliceSum::Run(void* output, bool overwrites, int64_t all_bytes) {
  auto* const to = static_cast<std::byte*>(output);
  if (readers_.empty() && writers_.empty()) {
    if (bytes_ > 0) ReduceChunk(to, bytes_, all_bytes);
    return Ok();
  }
  const auto all_written = [&] {
    return std::all_of(writers_.begin(), writers_.end(), [](const auto& w) { return w.Done(); });
  };
  const auto can_move = [&] {
    return CanReduce(overwrites) || std::any_of(writers_.begin(), writers_.end(),
                                                [](const auto& w) { return w.CanWrite(); });
  };
  while (reduced_bytes_ < bytes_ || !all_written()) {
    COLLOPS_RETURN_IF_ERROR(exchange_->step().Until(can_move));
    for (StageWriter& writer : writers_) {  // before reading: peers may be waiting for it
      while (writer.CanWrite()) writer.WriteChunk();
    }
    if (CanReduce(overwrites)) {
      ReduceChunk(to, std::min(shape_.chunk_bytes, bytes_ - reduced_bytes_), all_bytes);
    }
  }
  return Ok();
}

// The slices of one ReduceScatterV.
class Slices {
 public:
  Slices(Exchange* exchange, const ReduceScatterVCall& call)
      : exchange_(exchange),
        call_(call),
        size_(exchange->size()),
        element_bytes_(SizeOf(call.dtype)),
        all_bytes_(std::accumulate(call.send_counts, call.send_counts + size_, int64_t{0}) *
                   element_bytes_) {}

  StageShape Shape() const {
    return StageShape::LanePerPeer(size_).ForSkew(
        *std::max_element(call_.send_counts, call_.send_counts + size_) * element_bytes_,
        all_bytes_);
  }
  int64_t Bytes(int rank) const { return call_.send_counts[rank] * element_bytes_; }
  Status Announce() const;
  // Where this rank's slices lie on all ranks, and what it stages for them. `hull`: Hull().
  Status Find(const Range& hull, StageShape shape, SliceSum* sum) const;

  // The smallest range that holds every slice.
  Range Hull() const {
    Range hull{std::numeric_limits<int64_t>::max(), 0};
    for (int r = 0; r < size_; ++r) {
      if (call_.send_counts[r] == 0) continue;
      hull.begin = std::min(hull.begin, call_.sdispls[r]);
      hull.end = std::max(hull.end, call_.sdispls[r] + call_.send_counts[r]);
    }
    return hull.end == 0 ? Range{0, 0} : hull;
  }
  int64_t BytesOf(const Range& range) const { return (range.end - range.begin) * element_bytes_; }

 private:
  const std::byte* At(int64_t element) const {
    return static_cast<const std::byte*>(call_.x) + element * element_bytes_;
  }
  const std::byte* Slice(int rank) const { return At(call_.sdispls[rank]); }

  // A rank whose slices for its peers are small writes them into its call record, one after the
  // other in the order of the ranks, without the slice that no peer reads. All others announce the
  // hull, which may be small too, because slices may overlap.
  bool IsInRecord(int writer) const { return all_bytes_ - Bytes(writer) <= kCallRecordBytes; }
  // Where the slice for a reader lies there; `before`: the bytes of the slices of the ranks before
  // the reader.
  int64_t RecordOffset(int writer, int reader, int64_t before) const {
    return writer < reader ? before - Bytes(writer) : before;
  }

  Exchange* exchange_;
  const ReduceScatterVCall& call_;
  int size_;
  int64_t element_bytes_;
  int64_t all_bytes_;
};

Status Slices::Announce() const {
  const int rank = exchange_->rank();
  if (!IsInRecord(rank)) {
    const Range hull = Hull();
    return exchange_->Announce(*call_.agreement, {At(hull.begin), BytesOf(hull)}, [&] {
      const StageShape shape = Shape();
      for (int r = 0; r < size_; ++r) {
        if (r == rank) continue;
        StageFirst(exchange_, shape, StageShape::Lane(rank, r), Slice(r), Bytes(r));
      }
    });
  }
  const auto fill = [&](std::byte* record) {
    for (int r = 0; r < size_; ++r) {
      if (r == rank) continue;
      exchange_->peer_copy().Copy(record, Slice(r), Bytes(r));
      record += Bytes(r);
    }
  };
  return exchange_->AnnounceCells(*call_.agreement, SharedInput{}, fill, [] {});
}

Status Slices::Find(const Range& hull, StageShape shape, SliceSum* sum) const {
  const int rank = exchange_->rank();
  const int64_t slice_offset = (call_.sdispls[rank] - hull.begin) * element_bytes_;
  const int64_t before =
      std::accumulate(call_.send_counts, call_.send_counts + rank, int64_t{0}) * element_bytes_;
  for (int r = 0; r < size_ && Bytes(rank) > 0; ++r) {
    const std::byte* slice = Slice(rank);
    if (r != rank && IsInRecord(r)) {
      slice = exchange_->PeerCells(r) + RecordOffset(r, rank, before);
    } else if (r != rank) {
      COLLOPS_RETURN_IF_ERROR(exchange_->PeerInput(r, BytesOf(hull), &slice));
      if (slice != nullptr) slice += slice_offset;
    }
    sum->SetSlice(r, slice, StageShape::Lane(r, rank));
  }
  if (exchange_->own_place() != InputPlace::kStage) return Ok();
  for (int i = 1; i < size_; ++i) {
    const int reader = (rank + i) % size_;
    sum->writers().emplace_back(exchange_, shape, StageShape::Lane(rank, reader), Slice(reader),
                                Bytes(reader), reader);
  }
  return Ok();
}

// One step with more to read beats a ReduceScatterV and an AllGatherV, which wait for the peers
// twice.
Status AllReduceInOneStep(Exchange* exchange, const AllReduceCall& call) {
  constexpr StageShape kShape = StageShape::OneLane();
  const int64_t bytes = call.count * SizeOf(call.dtype);
  const auto* const x = static_cast<const std::byte*>(call.x);
  // If the output overwrites x, peers cannot read x in place.
  const SharedInput input{x, bytes, call.x == call.output};
  COLLOPS_RETURN_IF_ERROR(exchange->Announce(*call.agreement, input,
                                             [&] { StageFirst(exchange, kShape, 0, x, bytes); }));
  COLLOPS_RETURN_IF_ERROR(exchange->AwaitAll());
  SliceSum sum(exchange, kShape, call.dtype, call.op, bytes);
  for (int r = 0; r < exchange->size(); ++r) {
    const std::byte* vector = x;
    if (r != exchange->rank()) COLLOPS_RETURN_IF_ERROR(exchange->PeerInput(r, bytes, &vector));
    sum.SetSlice(r, vector, 0);
  }
  if (exchange->own_place() == InputPlace::kStage) {
    sum.writers().emplace_back(exchange, kShape, 0, x, bytes);
  }
  COLLOPS_RETURN_IF_ERROR(sum.Run(call.output, true, bytes));
  return exchange->End();
}

}  // namespace

Status ShmCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const Slices slices(exchange_.get(), call);
  COLLOPS_RETURN_IF_ERROR(slices.Announce());
  const int64_t bytes = slices.Bytes(rank());
  const Range hull = slices.Hull();
  const StageShape shape = slices.Shape();
  SliceSum sum(exchange_.get(), shape, call.dtype, call.op, bytes);
  COLLOPS_RETURN_IF_ERROR(exchange_->AwaitAll());
  COLLOPS_RETURN_IF_ERROR(slices.Find(hull, shape, &sum));
  COLLOPS_RETURN_IF_ERROR(sum.Run(call.output, false, slices.BytesOf(hull)));
  kernels::Zero(static_cast<std::byte*>(call.output) + bytes,
                call.output_count * SizeOf(call.dtype) - bytes);
  return exchange_->End();
}

// Equal on every rank, because first contact has compared the tuning tables.
Status ShmCommunicator::DoAllReduce(const AllReduceCall& call) {
  const Tuning& tuning = spec().tuning;
  const int64_t most = size() <= 2 ? tuning.all_reduce_one_step_2 : tuning.all_reduce_one_step;
  if (call.count * SizeOf(call.dtype) > most) return BackendCommunicator::DoAllReduce(call);
  return AllReduceInOneStep(exchange_.get(), call);
}

}  // namespace collops::shm

// AllGatherV and ExchangeV: every rank copies what its peers have for it, from their call records,
// stages or windows.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "collops/comm/backends/shm/communicator.h"
#include "collops/comm/backends/shm/exchange.h"
#include "collops/kernels/copy.h"

namespace collops::shm {
namespace {

// The blocks of one call's output, in bytes.
class OutputBlocks {
 public:
  OutputBlocks(const AllGatherVCall& call, int size)
      : call_(call),
        element_bytes_(SizeOf(call.dtype)),
        all_bytes_(std::accumulate(call.recv_counts, call.recv_counts + size, int64_t{0}) *
                   element_bytes_) {}

  StageShape Shape(int size) const {
    const int64_t largest = *std::max_element(call_.recv_counts, call_.recv_counts + size);
    return StageShape::OneLane().ForSkew(largest * element_bytes_, all_bytes_);
  }
  int64_t bytes(int rank) const { return call_.recv_counts[rank] * element_bytes_; }
  std::byte* output(int rank) const {
    return static_cast<std::byte*>(call_.output) + call_.rdispls[rank] * element_bytes_;
  }

  // Copies bytes of a rank's block, from `begin` on, to their place in the output.
  void Fill(int rank, int64_t begin, const void* source, int64_t num_bytes) const {
    kernels::Copy(output(rank) + begin, source, num_bytes, all_bytes_);
  }

 private:
  const AllGatherVCall& call_;
  int64_t element_bytes_;
  int64_t all_bytes_;
};

// A cell of a call record, one per reader, in the order of a stage's lanes: where the slice begins
// in the writer's x, which only a reader of its window needs, then the slice itself if it is short.
// Cells have a fixed size and place, so that a reader touches only the record's head and its own
// cell.
struct CellHead {
  int64_t begin_bytes;
};

int64_t CellBytes(int rank_size) {
  return kCallRecordBytes / std::max(rank_size - 1, 1) / 64 * 64;
}

// One rank's part in one call. How a slice travels depends on its length, on which writer and
// reader have agreed, and on whether the writer's x lies in a window.
class SliceExchange {
 public:
  SliceExchange(Exchange* exchange, const ExchangeVCall& call)
      : exchange_(exchange),
        call_(call),
        rank_(exchange->rank()),
        size_(exchange->size()),
        element_bytes_(SizeOf(call.dtype)),
        all_bytes_(std::accumulate(call.recv_counts, call.recv_counts + size_, int64_t{0}) *
                   element_bytes_),
        cell_bytes_(CellBytes(size_)),
        shape_(StageShape::LanePerPeer(size_)) {}

  Status Begin();
  void TakeOwn() const;
  Status TakePeers();
  Status RunStages();

 private:
  int64_t Sent(int rank) const { return call_.send_counts[rank] * element_bytes_; }
  int64_t Received(int rank) const { return call_.recv_counts[rank] * element_bytes_; }
  const std::byte* Slice(int rank) const {
    return static_cast<const std::byte*>(call_.x) + call_.sdispls[rank] * element_bytes_;
  }
  std::byte* Block(int rank) const {
    return static_cast<std::byte*>(call_.output) + call_.rdispls[rank] * element_bytes_;
  }
  bool IsShort(int64_t bytes) const { return bytes <= cell_bytes_ - int64_t{sizeof(CellHead)}; }

  SharedInput LongSlices() const;
  void FillCells(std::byte* cells, const std::byte* from) const;
  void StageLongSlices() const;

  Exchange* exchange_;
  const ExchangeVCall& call_;
  int rank_;
  int size_;
  int64_t element_bytes_;
  int64_t all_bytes_;  // of the output's blocks
  int64_t cell_bytes_;
  StageShape shape_;
  std::vector<StageWriter> writers_;
  std::vector<StageReader> readers_;
};

// The smallest range of x that holds every slice too long for a cell.
SharedInput SliceExchange::LongSlices() const {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || IsShort(Sent(r))) continue;
    begin = begin == nullptr ? Slice(r) : std::min(begin, Slice(r));
    end = end == nullptr ? Slice(r) + Sent(r) : std::max(end, Slice(r) + Sent(r));
  }
  return {begin, end - begin};
}

void SliceExchange::FillCells(std::byte* cells, const std::byte* from) const {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    std::byte* cell = cells + StageShape::Lane(rank_, r) * cell_bytes_;
    const CellHead head = {from == nullptr ? 0 : Slice(r) - from};
    std::memcpy(cell, &head, sizeof(head));
    if (IsShort(Sent(r))) exchange_->peer_copy().Copy(cell + sizeof(head), Slice(r), Sent(r));
  }
}

void SliceExchange::StageLongSlices() const {
  for (int r = 0; r < size_; ++r) {
    if (r == rank_ || IsShort(Sent(r))) continue;
    StageFirst(exchange_, shape_, StageShape::Lane(rank_, r), Slice(r), Sent(r));
  }
}

Status SliceExchange::Begin() {
  const SharedInput slices = LongSlices();
  COLLOPS_RETURN_IF_ERROR(exchange_->AnnounceCells(
      *call_.agreement, slices, [&](std::byte* cells) { FillCells(cells, slices.data); },
      [&] { StageLongSlices(); }));
  return exchange_->AwaitAll();
}

void SliceExchange::TakeOwn() const {
  kernels::Copy(Block(rank_), Slice(rank_), Received(rank_), all_bytes_);
  ZeroGaps(call_);
}

Status SliceExchange::TakePeers() {
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    if (Received(peer) == 0) continue;
    const std::byte* cell =
        exchange_->PeerCells(peer) + StageShape::Lane(peer, rank_) * cell_bytes_;
    if (IsShort(Received(peer))) {
      kernels::Copy(Block(peer), cell + sizeof(CellHead), Received(peer));
      continue;
    }
    CellHead head;
    std::memcpy(&head, cell, sizeof(head));
    const std::byte* data = nullptr;
    COLLOPS_RETURN_IF_ERROR(exchange_->PeerPart(peer, head.begin_bytes, Received(peer), &data));
    if (data != nullptr) {
      kernels::Copy(Block(peer), data, Received(peer), all_bytes_);
    } else {
      readers_.emplace_back(exchange_, shape_, StageShape::Lane(peer, rank_), peer, Received(peer));
    }
  }
  if (exchange_->own_place() != InputPlace::kStage) return Ok();
  for (int i = 1; i < size_; ++i) {
    const int reader = (rank_ + i) % size_;
    if (IsShort(Sent(reader))) continue;
    writers_.emplace_back(exchange_, shape_, StageShape::Lane(rank_, reader), Slice(reader),
                          Sent(reader), reader);
  }
  return Ok();
}

Status SliceExchange::RunStages() {
  const auto take = [&](const StageReader& reader) {
    kernels::Copy(Block(reader.writer()) + reader.begin(), reader.Chunk(),
                  reader.end() - reader.begin(), all_bytes_);
  };
  return MoveStages(exchange_, &writers_, &readers_, take, [](const StageWriter&) {});
}

}  // namespace

Status ShmCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  Exchange* const exchange = exchange_.get();
  const int rank = exchange->rank();
  const int size = exchange->size();
  const SharedInput input{static_cast<const std::byte*>(call.x),
                          call.recv_counts[rank] * SizeOf(call.dtype)};
  COLLOPS_RETURN_IF_ERROR(exchange->Announce(*call.agreement, input, [&] {
    StageFirst(exchange, OutputBlocks(call, size).Shape(size), 0, call.x, input.bytes);
  }));
  const OutputBlocks blocks(call, size);
  const StageShape shape = blocks.Shape(size);
  COLLOPS_RETURN_IF_ERROR(exchange->AwaitAll());

  std::vector<StageWriter> writers;
  if (exchange->own_place() == InputPlace::kStage) {
    writers.emplace_back(exchange, shape, 0, call.x, input.bytes);
  }
  ZeroGaps(call);
  // The own block first, while the peers' signals are on their way; a staged one with its chunks,
  // so that it is read from memory once.
  const bool copies_own = call.x != blocks.output(rank);
  if (copies_own && writers.empty() && input.bytes > 0) {
    blocks.Fill(rank, 0, call.x, input.bytes);
  }
  const auto written = [&](const StageWriter& writer) {
    const int64_t begin = writer.last_begin();
    if (copies_own) blocks.Fill(rank, begin, input.data + begin, writer.end() - begin);
  };
  if (!writers.empty() && writers.front().end() > 0) written(writers.front());
  std::vector<StageReader> readers;
  for (int i = 1; i < size; ++i) {
    const int peer = (rank + i) % size;
    const std::byte* data = nullptr;
    COLLOPS_RETURN_IF_ERROR(exchange->PeerInput(peer, blocks.bytes(peer), &data));
    if (data != nullptr) {
      blocks.Fill(peer, 0, data, blocks.bytes(peer));
    } else {
      readers.emplace_back(exchange, shape, 0, peer, blocks.bytes(peer));
    }
  }
  const auto take = [&](const StageReader& reader) {
    blocks.Fill(reader.writer(), reader.begin(), reader.Chunk(), reader.end() - reader.begin());
  };
  COLLOPS_RETURN_IF_ERROR(MoveStages(exchange, &writers, &readers, take, written));
  return exchange->End();
}

Status ShmCommunicator::DoExchangeV(const ExchangeVCall& call) {
  SliceExchange slices(exchange_.get(), call);
  COLLOPS_RETURN_IF_ERROR(slices.Begin());
  slices.TakeOwn();
  COLLOPS_RETURN_IF_ERROR(slices.TakePeers());
  COLLOPS_RETURN_IF_ERROR(slices.RunStages());
  return exchange_->End();
}

}  // namespace collops::shm

#include "collops/comm/backends/shm/all_gather_v.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "collops/comm/backends/shm/stage.h"
#include "collops/kernels/copy/copy.h"

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
  std::byte* output(int rank) const { return At(call_.rdispls[rank]); }

  // Copies bytes of a rank's block, from `begin` on, to their place in the output.
  void Fill(int rank, int64_t begin, const void* source, int64_t num_bytes) const {
    kernels::Copy(output(rank) + begin, source, num_bytes, all_bytes_);
  }

  void ZeroGaps() const {
    for (int64_t i = 0; i < call_.num_gaps; ++i) {
      const Range& gap = call_.gaps[i];
      kernels::Zero(At(gap.begin), (gap.end - gap.begin) * element_bytes_);
    }
  }

 private:
  std::byte* At(int64_t element) const {
    return static_cast<std::byte*>(call_.output) + element * element_bytes_;
  }

  const AllGatherVCall& call_;
  int64_t element_bytes_;
  int64_t all_bytes_;
};

}  // namespace

Status AllGatherV(Exchange* exchange, const AllGatherVCall& call) {
  const int rank = exchange->rank();
  const int size = exchange->size();
  const OutputBlocks blocks(call, size);
  const StageShape shape = blocks.Shape(size);
  const Input input{static_cast<const std::byte*>(call.x), blocks.bytes(rank)};
  COLLOPS_RETURN_IF_ERROR(exchange->Begin(
      *call.agreement, input, [&] { StageFirst(exchange, shape, 0, call.x, input.bytes); }));

  std::vector<StageWriter> writers;
  if (exchange->own_place() == InputPlace::kStage) {
    writers.emplace_back(exchange, shape, 0, call.x, input.bytes, 0, size);
  }
  blocks.ZeroGaps();
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

}  // namespace collops::shm

#include "collops/comm/backends/shm/all_reduce.h"

#include <algorithm>
#include <vector>

#include "collops/comm/backends/shm/stage.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::shm {
namespace {

// One rank's part in one call.
class OneStep {
 public:
  OneStep(Exchange* exchange, const AllReduceCall& call)
      : exchange_(exchange), call_(call), bytes_(call.count * SizeOf(call.dtype)) {}

  Status Begin();
  Status Run();

 private:
  bool CanReduce() const;
  void ReduceChunk();

  Exchange* exchange_;
  const AllReduceCall& call_;
  int64_t bytes_;
  const std::byte* vectors_[control::kMaxRanks];  // null: staged
  const void* chunks_[control::kMaxRanks];
  std::vector<StageWriter> writers_;  // one, or none
  std::vector<StageReader> readers_;
  int64_t reduced_bytes_ = 0;
};

Status OneStep::Begin() {
  const auto* const x = static_cast<const std::byte*>(call_.x);
  // If the output overwrites x, peers cannot read x in place.
  const Input input{x, bytes_, call_.x == call_.output};
  COLLOPS_RETURN_IF_ERROR(exchange_->Begin(*call_.agreement, input, [&] {
    StageFirst(exchange_, StageShape::OneLane(), 0, x, bytes_);
  }));
  for (int r = 0; r < exchange_->size(); ++r) {
    vectors_[r] = x;
    if (r == exchange_->rank()) continue;
    COLLOPS_RETURN_IF_ERROR(exchange_->PeerInput(r, bytes_, &vectors_[r]));
    if (vectors_[r] != nullptr) continue;
    readers_.emplace_back(exchange_, StageShape::OneLane(), 0, r, bytes_);
  }
  if (exchange_->own_place() == InputPlace::kStage) {
    writers_.emplace_back(exchange_, StageShape::OneLane(), 0, x, bytes_, 0, exchange_->size());
  }
  return Ok();
}

bool OneStep::CanReduce() const {
  const auto has_written = [&](const auto& w) { return w.end() > reduced_bytes_; };
  return reduced_bytes_ < bytes_ && std::all_of(writers_.begin(), writers_.end(), has_written) &&
         std::all_of(readers_.begin(), readers_.end(), [](const auto& r) { return r.CanRead(); });
}

// The next chunk of all vectors; whole vectors if no peer's goes through its stage.
void OneStep::ReduceChunk() {
  const int64_t left = bytes_ - reduced_bytes_;
  const bool staged = !readers_.empty() || !writers_.empty();
  const int64_t bytes = staged ? std::min(StageShape::OneLane().chunk_bytes, left) : left;
  auto reader = readers_.begin();
  for (int r = 0; r < exchange_->size(); ++r) {
    chunks_[r] = vectors_[r] != nullptr ? vectors_[r] + reduced_bytes_ : (reader++)->Chunk();
  }
  kernels::Reduce(static_cast<std::byte*>(call_.output) + reduced_bytes_, chunks_,
                  exchange_->size(), bytes / SizeOf(call_.dtype), call_.dtype, call_.op, bytes_);
  for (StageReader& used : readers_) used.Release();
  reduced_bytes_ += bytes;
}

Status OneStep::Run() {
  if (readers_.empty() && writers_.empty()) {
    ReduceChunk();
    return Ok();
  }
  const auto can_write = [&] { return !writers_.empty() && writers_.front().CanWrite(); };
  while (reduced_bytes_ < bytes_) {
    COLLOPS_RETURN_IF_ERROR(exchange_->step().Until([&] { return CanReduce() || can_write(); }));
    while (can_write()) writers_.front().WriteChunk();  // before reading: peers may wait for it
    if (CanReduce()) ReduceChunk();
  }
  return Ok();
}

}  // namespace

bool ReducesInOneStep(const AllReduceCall& call, int rank_size, const Tuning& tuning) {
  const int64_t bytes = call.count * SizeOf(call.dtype);
  return bytes <= (rank_size <= 2 ? tuning.all_reduce_one_step_2 : tuning.all_reduce_one_step);
}

Status AllReduceInOneStep(Exchange* exchange, const AllReduceCall& call) {
  OneStep step(exchange, call);
  COLLOPS_RETURN_IF_ERROR(step.Begin());
  if (call.count > 0) COLLOPS_RETURN_IF_ERROR(step.Run());
  return exchange->End();
}

}  // namespace collops::shm

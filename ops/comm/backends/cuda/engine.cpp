#include "comm/backends/cuda/engine.h"

#include <algorithm>

#include "comm/control/control.h"
#include "comm/user_calls.h"
#include "kernels/cuda/driver/device_scope.h"
#include "kernels/cuda/driver/error.h"
#include "kernels/cuda/memory/running_calls.h"
#include "kernels/cuda/peers/staging.h"

namespace collops::cuda_peers {
namespace {

using cuda::ToStatus;

// How long a communicator waits for its calls before it ends them.
constexpr double kEndS = 2.0;
// What a thread of a kernel moves before another block is worth its start.
constexpr int64_t kBytesPerBlock = int64_t{32} << 10;

}  // namespace

Engine::Engine(const cuda::DriverApi& driver, const CommunicatorSpec& spec)
    : StreamEngine(&runtime_),
      driver_(driver),
      rank_(spec.rank),
      size_(spec.rank_size),
      runtime_(driver),
      kernels_(driver),
      memory_(driver) {}

cuda::PeerCall Engine::BeginCall(const Agreement& agreement) {
  table_->Write(agreement, UserCall::Number());
  cuda::PeerCall call = {};
  call.group = group_;
  call.digest = agreement.digest();
  call.balance = agreement.balance();
  return call;
}

// Blocks wait for peers' blocks, so those of all ranks of a GPU must fit there at once. Pieces that
// go through the regions belong to one worker each, so all ranks have the same number of workers.
Status Engine::FindBlocks(const cuda::PeerCall& call, int64_t bytes, int* blocks) const {
  int64_t longest = 0;
  for (int r = 0; r < size_; ++r) {
    longest = std::max({longest, call.parts[r].send_bytes, call.parts[r].recv_bytes});
  }
  *blocks = 1;
  if (cuda::IsInline(longest)) return Ok();
  if (group_.is_direct != 0) {
    const int64_t enough = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
    *blocks = static_cast<int>(std::clamp<int64_t>(enough, 1, most_blocks_));
    return Ok();
  }
  *blocks = group_.num_workers;
  const int64_t pieces = longest / group_.num_workers / cuda::PieceBytes(call);
  CHECK_ARG(pieces < cuda::kMostPieces - 1, ERROR_UNSUPPORTED, "backend cuda: a part of ", longest,
            " bytes for one rank is too long for ", size_, " ranks: use nccl");
  return Ok();
}

// The kernels of a group count their steps, so they run one after another. Those of two ranks must
// run at the same time, which they do not on one stream.
Status Engine::OrderBehindLast(cuda::Stream stream) {
  CHECK_ARG(!shares_device_ || stream != cuda::LegacyStream(), ERROR_INVALID_STREAM,
            "ranks of this process share GPU ", device_,
            ", and on its default stream their kernels would wait for each other: pass each rank a "
            "stream of its own");
  cuda::Graph graph = nullptr;
  RETURN_IF_ERROR(runtime_.FindGraph(stream, &graph));
  if (graph != nullptr || last_stream_ == nullptr || last_stream_ == stream) return Ok();
  return ToStatus(driver_, driver_.stream_wait_event(stream, last_, 0), "cuStreamWaitEvent");
}

Status Engine::MarkLast(cuda::Stream stream) {
  cuda::Graph graph = nullptr;
  RETURN_IF_ERROR(runtime_.FindGraph(stream, &graph));
  if (graph != nullptr) return Ok();
  if (last_ == nullptr) RETURN_IF_ERROR(runtime_.CreateEvent(&last_));
  RETURN_IF_ERROR(runtime_.RecordEvent(last_, stream));
  cuda::RunningCalls::Note(this, last_);
  last_stream_ = stream;
  return Ok();
}

Status Engine::FindDevice(int* device) const {
  return cuda::CurrentDevice(driver_, device);
}

Status Engine::OnDevice(int device, const std::function<void()>& step) const {
  const cuda::DeviceScope scope(driver_, device);
  if (scope.status().ok()) step();
  return scope.status();
}

// The ranks may have made other calls since, so the number is that of the call in which they
// differ.
Status Engine::AsyncError() {
  const cuda::Verdict verdict = memory_.ReadVerdict();
  if (verdict.step == 0) return Ok();
  return table_->Describe(verdict, [this](int rank) { return control_->endpoint().Who(rank); });
}

// A thread's mode for what would be refused while any thread captures.
void Engine::AllowCaptures() const {
  cuda::CaptureMode mode = cuda::CaptureMode::kRelaxed;
  // The caller cannot act on an error of this call.
  static_cast<void>(driver_.exchange_capture_mode(&mode));
}

double Engine::Patience() const {
  return kEndS;
}

void Engine::LetGo(bool past) {
  cuda::RunningCalls::Forget(this);
  if (past && last_ != nullptr) runtime_.DestroyEvent(last_);
  last_ = nullptr;
  last_stream_ = nullptr;
  memory_.LetGo(past);
  is_connected_ = false;
}

}  // namespace collops::cuda_peers

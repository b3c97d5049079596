#include "collops/comm/backends/cuda/engine.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "collops/comm/control/control.h"
#include "collops/comm/user_calls.h"
#include "collops/core/deadline.h"
#include "collops/core/process/interrupt.h"
#include "collops/kernels/cuda/compute.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda_peers {
namespace {

using cuda::ToStatus;

// How long a communicator waits for its calls before it ends them.
constexpr double kEndS = 2.0;
// What a block moves before another one is worth its start.
constexpr int64_t kBytesPerBlock = int64_t{32} << 10;
// From so many bytes on, two more kernels are worth it that the one that moves data need not wait.
constexpr int64_t kGatedBytes = int64_t{8} << 20;
// Outputs of all ranks of a GPU together that do not stay in an L2.
constexpr int64_t kStreamedBytes = int64_t{32} << 20;
// A call beside products takes one in so many of the blocks that it might have, which is as many as
// a link between GPUs keeps busy.
constexpr int kPartBeside = 2;

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

bool Engine::IsGated(int64_t bytes) const {
  return group_.is_direct != 0 && size_ > 1 && bytes >= kGatedBytes;
}

bool Engine::IsStreamed(int64_t bytes) const {
  return bytes > kStreamedBytes / sharers_;
}

int Engine::WorkersBeside() const {
  return (group_.num_workers + kPartBeside - 1) / kPartBeside;
}

// The most blocks of a kernel that waits. Products run beside the streams that they make, which
// they do not where threads share a GPU, and get most multiprocessors; which stream a call is on is
// equal on all ranks, as they cut a product alike.
int Engine::WorkersOn(cuda::Stream stream) const {
  if (group_.is_direct != 0) return most_blocks_;
  return cuda::CudaCompute::IsSideStream(stream) ? WorkersBeside() : group_.num_workers;
}

// Blocks that never wait have all places of the GPU, of which each rank takes its part of the work.
int Engine::DataBlocks(const char* name, int64_t bytes, double part) const {
  const int64_t enough = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  const double of_group = kernels_.MostBlocks(name) * (static_cast<double>(size_) / sharers_);
  const int most = std::max(1, static_cast<int>(of_group * part));
  return static_cast<int>(std::clamp<int64_t>(enough, 1, most));
}

// Blocks wait for peers' blocks, so those of all ranks of a GPU must fit there at once. Pieces that
// go through the regions belong to one worker each, and ranges of short messages too, so all ranks
// have the same number of workers.
Status Engine::FindBlocks(const cuda::PeerCall& call, int64_t bytes, int* blocks) const {
  int64_t longest = 0;
  for (int r = 0; r < size_; ++r) {
    longest = std::max({longest, call.parts[r].send_bytes, call.parts[r].recv_bytes});
  }
  int64_t enough = std::max({call.sends.ranges(), call.receives.ranges(), 1});
  if (!cuda::IsInline(longest)) {
    enough = group_.is_direct != 0 ? std::max(enough, (bytes + kBytesPerBlock - 1) / kBytesPerBlock)
                                   : call.group.num_workers;
  }
  *blocks = static_cast<int>(std::min<int64_t>(enough, call.group.num_workers));
  if (group_.is_direct != 0 || cuda::IsInline(longest)) return Ok();
  const int64_t pieces = longest / call.group.num_workers / cuda::PieceBytes(call);
  COLLOPS_CHECK_ARG(pieces < cuda::kMostPieces - 1, ERROR_UNSUPPORTED, "backend cuda: a part of ",
                    longest, " bytes for one rank is too long for ", size_, " ranks: use nccl");
  return Ok();
}

// Kernels of two ranks must run at the same time, which they do not on one stream.
Status Engine::CheckStream(void* stream) const {
  COLLOPS_CHECK_ARG(
      !shares_device_ || stream != cuda::LegacyStream(), ERROR_INVALID_STREAM,
      "ranks of this process share GPU ", device_,
      ", and on its default stream their kernels would wait for each other: pass each rank a "
      "stream of its own");
  return Ok();
}

// The kernels of a group count their steps, so they run one after another. Equal handles may be two
// streams: one is made after the other is gone, or both are their threads' own.
Status Engine::OrderBehindLast(cuda::Stream stream) {
  uint64_t capture = 0;
  cuda::Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(runtime_.FindCapture(stream, &capture, &graph));
  const Last& last = graph == nullptr ? last_ : last_captured_;
  if (last.event == nullptr || last.capture != capture) return Ok();
  return ToStatus(driver_, driver_.stream_wait_event(stream, last.event, 0), "cuStreamWaitEvent");
}

Status Engine::MarkLast(cuda::Stream stream) {
  uint64_t capture = 0;
  cuda::Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(runtime_.FindCapture(stream, &capture, &graph));
  Last& last = graph == nullptr ? last_ : last_captured_;
  if (last.event == nullptr) COLLOPS_RETURN_IF_ERROR(runtime_.CreateEvent(&last.event));
  COLLOPS_RETURN_IF_ERROR(runtime_.RecordEvent(last.event, stream));
  if (graph == nullptr) cuda::RunningCalls::Note(driver_, this, last.event);
  last.capture = capture;
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

Status Engine::DeviceError() {
  if (last_.event == nullptr) return Ok();
  const cuda::Result result = driver_.event_query(last_.event);
  return result == cuda::Result::kNotReady ? Ok() : ToStatus(driver_, result, "a call on the GPU");
}

// Also of a replayed graph, of which this process knows nothing else.
std::optional<double> Engine::WaitingS() {
  const auto now = std::chrono::steady_clock::now();
  const uint64_t word = memory_.ReadWait();
  const uint64_t seen = std::exchange(wait_seen_, word);
  if (word == seen) return std::nullopt;
  if (word >> 32 != seen >> 32) wait_since_ = now;
  return std::chrono::duration<double>(now - wait_since_).count();
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
  for (Last* const last : {&last_, &last_captured_}) {
    if (past && last->event != nullptr) runtime_.DestroyEvent(last->event);
    *last = {};
  }
  // Kernels of peers may outlast the failure of their group, and write here.
  memory_.LetGo(past, past && !(control_ != nullptr && control_->failed()));
  is_connected_ = false;
}

namespace {

// A slot of a worker: long enough that signals do not matter, and short enough that a sender and a
// receiver work at the same time.
constexpr int64_t kSlotBytes = int64_t{256} << 10;

}  // namespace

// How many blocks the kernels may have, and whether data is read where it lies: where all ranks are
// threads of one process on one GPU, so that any address of one is one of all.
void Engine::Arrange(const std::vector<Place>& places) {
  const Place& own = places[static_cast<size_t>(rank_)];
  group_ = {};
  group_.rank = rank_;
  group_.size = size_;
  most_blocks_ = BlocksOf(places, own);
  sharers_ = SharersOf(places, own);
  NoteSharers(places, own);
  device_ = own.device;
  shares_device_ = std::count_if(places.begin(), places.end(), [&](const Place& other) {
                     return InOneProcess(own.home, other.home) && OnOneDevice(own.home, other.home);
                   }) > 1;
  const bool is_direct = std::all_of(places.begin(), places.end(), [&](const Place& other) {
    return InOneProcess(own.home, other.home) && OnOneDevice(own.home, other.home);
  });
  group_.is_direct = is_direct ? 1 : 0;
  if (!is_direct) {
    int workers = cuda::kMostWorkers;
    for (const Place& place : places) workers = std::min(workers, BlocksOf(places, place));
    group_.num_workers = workers;
    group_.slot_bytes = kSlotBytes;
  }
  share_.blocks_beside = share_.ranks * WorkersBeside();
}

// Makes this rank's region, which needs no peer.
Status Engine::MakeRegion(const std::vector<Place>& places, int device) {
  Arrange(places);
  // The first step's number is one that no earlier communicator is likely to have had in this
  // memory.
  const auto last_step = static_cast<uint32_t>(places[0].draw);
  COLLOPS_RETURN_IF_ERROR(memory_.Allocate(device, group_.Layout().Bytes(), last_step,
                                           [this] { return MayAllocate(); }));
  table_.emplace(control_->backend_memory(), rank_, size_);
  return Ok();
}

// Waits until no kernel of this process runs that may wait for its peers.
Status Engine::MayAllocate() {
  const Deadline deadline = Deadline::After(control_->timeout_s());
  return cuda::RunningCalls::Await(driver_, [&]() -> Status {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kFirstContact, ": rank ", rank_,
                      " was interrupted");
    COLLOPS_RETURN_IF_ERROR(control_->Peek(kFirstContact));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, kFirstContact,
                      ": a call of another communicator of this process did not end within ",
                      deadline.timeout_s(), " s, and no memory can be allocated while it runs");
    return Ok();
  });
}

// The ranks tell each other where they run, then where their regions are; and each says whether it
// could open those of all others before any kernel uses one.
Status Engine::Meet(control::Control* control, bool compares, int device) {
  control_ = control;
  COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  Place own = {};
  COLLOPS_RETURN_IF_ERROR(FindPlace(driver_, device, kernels_.MostWaitingBlocks(), &own));
  std::vector<Place> places(static_cast<size_t>(size_));
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares ? "1" : "0");
  COLLOPS_RETURN_IF_ERROR(control->Share(agreement, &own, sizeof(own), places.data()));
  std::vector<cuda::Home> homes;
  for (const Place& place : places) homes.push_back(place.home);
  cuda::WarnOfSharing(driver_, device, rank_, homes);
  share_ = ShareOf(homes);

  std::vector<SlabPart> parts(static_cast<size_t>(size_));
  const Status made = MakeRegion(places, device);
  if (!made.ok()) {
    static_cast<void>(control->Refuse(kFirstContact, made));
    return made;
  }
  const Agreement next(kFirstContact);
  COLLOPS_RETURN_IF_ERROR(control->Share(next, &memory_.own(), sizeof(SlabPart), parts.data()));
  const Status opened = memory_.Open(rank_, places, parts, [this] { return MayAllocate(); });
  std::vector<int> everyone(places.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  // What cannot be opened because a rank has left is that rank's fault, and the step has its
  // reason.
  if (!opened.ok() && control->FindLossAmong(everyone, true).ok()) {
    static_cast<void>(control->Refuse(kFirstContact, opened));
    return opened;
  }
  COLLOPS_RETURN_IF_ERROR(control->Agree(next));
  COLLOPS_RETURN_IF_ERROR(opened);

  for (int rank = 0; rank < size_; ++rank) group_.regions[rank] = memory_.region(rank);
  group_.stop = memory_.device_stop();
  group_.wait = memory_.device_wait();
  group_.verdict = memory_.device_verdict();
  is_connected_ = true;
  return Ok();
}

}  // namespace collops::cuda_peers

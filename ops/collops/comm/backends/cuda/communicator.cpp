#include "collops/comm/backends/cuda/communicator.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "collops/comm/backends/cuda/backend.h"
#include "collops/comm/control/control.h"
#include "collops/comm/user_calls.h"
#include "collops/core/deadline.h"
#include "collops/core/env.h"
#include "collops/core/process/interrupt.h"
#include "collops/kernels/cuda/compute.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/peers/copy.h"
#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/reduce_scatter.h"
#include "collops/kernels/cuda/runtime.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::cuda_peers {
namespace {

using cuda::ToStatus;

// How long a communicator waits for its calls before it ends them.
constexpr double kEndS = 2.0;
// What a block moves before another one is worth its start.
constexpr int64_t kBytesPerBlock = int64_t{32} << 10;
// From so many bytes on, one more kernel is worth it that the one that moves data need not wait.
constexpr int64_t kGatedBytes = int64_t{8} << 20;
// Outputs of all ranks of a GPU together that do not stay in an L2.
constexpr int64_t kStreamedBytes = int64_t{32} << 20;
// A call beside products takes one in so many of the blocks that it might have, which is as many as
// a link between GPUs keeps busy.
constexpr int kPartBeside = 2;
// A slot of a worker: long enough that signals do not matter, and short enough that a sender and a
// receiver work at the same time.
constexpr int64_t kSlotBytes = int64_t{256} << 10;

}  // namespace

CudaCommunicator::CudaCommunicator(std::shared_ptr<control::Control> control,
                                   const cuda::DriverApi& driver, bool compares)
    : StreamCommunicator(std::move(control), DeviceKind::kCuda, compares, &runtime_),
      driver_(driver),
      runtime_(driver),
      kernels_(driver),
      memory_(driver) {
  SetCompute(std::make_unique<cuda::CudaCompute>(
      driver, device_index(), [this](void* stream) { return CheckStream(stream); }));
  Begin();
}

Status CudaCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
      return Ok();
    case Primitive::kReduce:
    case Primitive::kEvenReduce:
      COLLOPS_CHECK_ARG(kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED, "backend cuda has no ",
                        Name(op), " of ", Name(dtype));
      return Ok();
    case Primitive::kMessages:
      return Error(ERROR_UNSUPPORTED, "backend cuda has no messages between two ranks: use nccl");
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend cuda has no windows: tensors need no special memory");
}

cuda::PeerCall CudaCommunicator::BeginCall(const Agreement& agreement) {
  table_->Write(agreement, UserCall::Number());
  cuda::PeerCall call = {};
  call.group = group_;
  call.digest = agreement.digest();
  call.balance = agreement.balance();
  return call;
}

bool CudaCommunicator::IsGated(int64_t bytes) const {
  return group_.is_direct != 0 && size() > 1 && bytes >= kGatedBytes;
}

bool CudaCommunicator::IsStreamed(int64_t bytes) const {
  return bytes > kStreamedBytes / sharers_;
}

int CudaCommunicator::WorkersBeside() const {
  return (group_.num_workers + kPartBeside - 1) / kPartBeside;
}

// The most blocks of a kernel that waits. Products run beside the streams that they make, which
// they do not where threads share a GPU, and get most multiprocessors; which stream a call is on is
// equal on all ranks, as they cut a product alike.
int CudaCommunicator::WorkersOn(cuda::Stream stream) const {
  if (group_.is_direct != 0) return most_blocks_;
  return cuda::CudaCompute::IsSideStream(stream) ? WorkersBeside() : group_.num_workers;
}

// Blocks that never wait have all places of the GPU, of which each rank takes its part of the work.
int CudaCommunicator::DataBlocks(const char* name, int64_t bytes, double part) const {
  const int64_t enough = (bytes + kBytesPerBlock - 1) / kBytesPerBlock;
  const double of_group = kernels_.MostBlocks(name) * (static_cast<double>(size()) / sharers_);
  const int most = std::max(1, static_cast<int>(of_group * part));
  return static_cast<int>(std::clamp<int64_t>(enough, 1, most));
}

// Blocks wait for peers' blocks, so those of all ranks of a GPU must fit there at once. Pieces that
// go through the regions belong to one worker each, and ranges of short messages too, so all ranks
// have the same number of workers.
Status CudaCommunicator::FindBlocks(const cuda::PeerCall& call, int64_t bytes, int* blocks) const {
  int64_t longest = 0;
  for (int r = 0; r < size(); ++r) {
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
                    longest, " bytes for one rank is too long for ", size(), " ranks: use nccl");
  return Ok();
}

// Kernels of two ranks must run at the same time, which they do not on one stream.
Status CudaCommunicator::CheckStream(void* stream) const {
  COLLOPS_CHECK_ARG(
      !shares_device_ || stream != cuda::LegacyStream(), ERROR_INVALID_STREAM,
      "ranks of this process share GPU ", int{device_index()},
      ", and on its default stream their kernels would wait for each other: pass each rank a "
      "stream of its own");
  return Ok();
}

// The kernels of a group count their steps, so they run one after another. Equal handles may be two
// streams: one is made after the other is gone, or both are their threads' own.
Status CudaCommunicator::OrderBehindLast(cuda::Stream stream) {
  uint64_t capture = 0;
  cuda::Graph graph = nullptr;
  COLLOPS_RETURN_IF_ERROR(runtime_.FindCapture(stream, &capture, &graph));
  const Last& last = graph == nullptr ? last_ : last_captured_;
  if (last.event == nullptr || last.capture != capture) return Ok();
  return ToStatus(driver_, driver_.stream_wait_event(stream, last.event, 0), "cuStreamWaitEvent");
}

Status CudaCommunicator::MarkLast(cuda::Stream stream) {
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

// The ranks may have made other calls since, so the number is that of the call in which they
// differ.
Status CudaCommunicator::AsyncError() {
  const cuda::Verdict verdict = memory_.ReadVerdict();
  if (verdict.step == 0) return Ok();
  return table_->Describe(verdict, [this](int rank) { return control().endpoint().Who(rank); });
}

Status CudaCommunicator::DeviceError() {
  if (last_.event == nullptr) return Ok();
  const cuda::Result result = driver_.event_query(last_.event);
  return result == cuda::Result::kNotReady ? Ok() : ToStatus(driver_, result, "a call on the GPU");
}

// Also of a replayed graph, of which this process knows nothing else.
std::optional<double> CudaCommunicator::WaitingS() {
  const auto now = std::chrono::steady_clock::now();
  const uint64_t word = memory_.ReadWait();
  const uint64_t seen = std::exchange(wait_seen_, word);
  if (word == seen) return std::nullopt;
  if (word >> 32 != seen >> 32) wait_since_ = now;
  return std::chrono::duration<double>(now - wait_since_).count();
}

double CudaCommunicator::Patience() const {
  return kEndS;
}

void CudaCommunicator::LetGo(bool past) {
  cuda::RunningCalls::Forget(this);
  for (Last* const last : {&last_, &last_captured_}) {
    if (past && last->event != nullptr) runtime_.DestroyEvent(last->event);
    *last = {};
  }
  // Kernels of peers may outlast the failure of their group, and write here.
  const bool all_past = !control().failed() || (is_connected_ && HaveAllCallsEnded());
  memory_.LetGo(past, past && all_past);
  is_connected_ = false;
}

// How many blocks the kernels may have, and whether data is read where it lies: where all ranks are
// threads of one process on one GPU, so that any address of one is one of all.
void CudaCommunicator::Arrange(const std::vector<Place>& places,
                               const std::vector<cuda::Home>& homes) {
  const Place& own = places[static_cast<size_t>(rank())];
  group_ = {};
  group_.rank = rank();
  group_.size = size();
  most_blocks_ = BlocksOf(places, own);
  sharers_ = SharersOf(places, own);
  NoteSharers(places, own);
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
  DeviceShare share = ShareOf(homes);
  share.blocks_beside = share.ranks * WorkersBeside();
  SetShare(share);
}

// Makes this rank's region, which needs no peer.
Status CudaCommunicator::MakeRegion(const std::vector<Place>& places,
                                    const std::vector<cuda::Home>& homes) {
  Arrange(places, homes);
  // The first step's number is one that no earlier communicator is likely to have had in this
  // memory.
  const auto last_step = static_cast<uint32_t>(places[0].draw);
  COLLOPS_RETURN_IF_ERROR(memory_.Allocate(device_index(), group_.Layout().Bytes(), last_step,
                                           [this] { return MayAllocate(); }));
  table_.emplace(control().backend_memory(), rank(), size());
  return Ok();
}

// Waits until no kernel of this process runs that may wait for its peers.
Status CudaCommunicator::MayAllocate() {
  const Deadline deadline = Deadline::After(control().timeout_s());
  return cuda::RunningCalls::Await(driver_, [&]() -> Status {
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, kFirstContact, ": rank ", rank(),
                      " was interrupted");
    COLLOPS_RETURN_IF_ERROR(control().Peek(kFirstContact));
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, kFirstContact,
                      ": a call of another communicator of this process did not end within ",
                      deadline.timeout_s(), " s, and no memory can be allocated while it runs");
    return Ok();
  });
}

// The ranks tell each other where they run, then where their regions are; and each says whether it
// could open those of all others before any kernel uses one.
Status CudaCommunicator::Meet() {
  COLLOPS_RETURN_IF_ERROR(kernels_.Load());
  Place own = {};
  COLLOPS_RETURN_IF_ERROR(FindPlace(driver_, device_index(), kernels_.MostWaitingBlocks(), &own));
  std::vector<Place> places(static_cast<size_t>(size()));
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares() ? "1" : "0");
  COLLOPS_RETURN_IF_ERROR(control().Share(agreement, &own, sizeof(own), places.data()));
  std::vector<cuda::Home> homes;
  for (const Place& place : places) homes.push_back(place.home);
  cuda::WarnOfSharing(driver_, device_index(), rank(), homes);

  std::vector<SlabPart> parts(static_cast<size_t>(size()));
  const Status made = MakeRegion(places, homes);
  if (!made.ok()) {
    static_cast<void>(control().Refuse(kFirstContact, made));
    return made;
  }
  const Agreement next(kFirstContact);
  COLLOPS_RETURN_IF_ERROR(control().Share(next, &memory_.own(), sizeof(SlabPart), parts.data()));
  const Status opened = memory_.Open(rank(), places, parts, [this] { return MayAllocate(); });
  std::vector<int> everyone(places.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  // What cannot be opened because a rank has left is that rank's fault, and the step has its
  // reason.
  if (!opened.ok() && control().FindLossAmong(everyone, true).ok()) {
    static_cast<void>(control().Refuse(kFirstContact, opened));
    return opened;
  }
  COLLOPS_RETURN_IF_ERROR(control().Agree(next));
  COLLOPS_RETURN_IF_ERROR(opened);

  for (int rank = 0; rank < size(); ++rank) group_.regions[rank] = memory_.region(rank);
  group_.stop = memory_.device_stop();
  group_.wait = memory_.device_wait();
  group_.verdict = memory_.device_verdict();
  is_connected_ = true;
  return Ok();
}

namespace {

Status Load(const cuda::DriverApi** driver) {
  const auto of_backend = [](const Status& status) {
    return status.ok() ? Ok() : Error(status.code(), "backend cuda: ", status.message());
  };
  COLLOPS_RETURN_IF_ERROR(of_backend(cuda::LoadDriver(driver)));
  return of_backend(cuda::Kernels::Available());
}

}  // namespace

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size) + CallTable::Bytes(rank_size);
}

Status Available() {
  const cuda::DriverApi* driver = nullptr;
  return Load(&driver);
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  const cuda::DriverApi* driver = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&driver));
  COLLOPS_CHECK_ARG(spec.rank_size <= cuda::kMostRanks, ERROR_UNSUPPORTED,
                    "backend cuda has at most ", cuda::kMostRanks, " ranks, got ", spec.rank_size,
                    ": use nccl");
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(
      control::Control::Create(spec, CallTable::Bytes(spec.rank_size), &control));
  *communicator = std::make_shared<CudaCommunicator>(std::move(control), *driver, env.check);
  return Ok();
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  const auto there = [](const Status& status) {
    return status.ok() ? std::string("found") : Concat("no: ", status.message());
  };
  auto facts = cuda::GpuFacts();
  facts.emplace_back("GPU kernels", there(cuda::Kernels::Available()));
  const cuda::BlasApi* blas = nullptr;
  facts.emplace_back("cuBLASLt, for LinearParallel", there(cuda::LoadBlas(&blas)));
  return facts;
}

}  // namespace collops::cuda_peers

#include "comm/backends/shm/communicator.h"

#include <unistd.h>

#include <random>

#include "comm/backends/shm/all_gather_v.h"
#include "comm/backends/shm/backend.h"
#include "comm/backends/shm/reduce_scatter_v.h"
#include "kernels/reduce.h"
#include "kernels/thread_pool.h"

namespace collops::shm {

ShmCommunicator::ShmCommunicator(const CommunicatorSpec& spec, const JobIdentity& job)
    : Communicator(spec),
      job_(job),
      fork_generation_(ForkGeneration()),
      meeting_(Meeting::Create(spec, job)) {
  meeting_->Begin();
}

ShmCommunicator::~ShmCommunicator() {
  Close("it closed its communicator");
  // In a child of fork() these belong to the parent: their ends would speak for it.
  if (Inherited()) {
    (void)meeting_.release();
    (void)connection_.release();
  }
}

Status ShmCommunicator::Supports(CallKind kind, DType dtype, ReduceOp op) const {
  CHECK_ARG(kind != CallKind::kReduceScatterV || kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED,
            "backend shm: there is no ", Name(op), " of ", Name(dtype));
  return Ok();
}

Status ShmCommunicator::CheckUsable() const {
  CHECK_ARG(!Inherited(), ERROR_INVALID_PARAM, "comm_domain \"", spec().comm_domain,
            "\": this communicator belongs to the parent process; make a new one after fork()");
  if (!failed()) return Ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  return Error(failure_.code(), "comm_domain \"", spec().comm_domain,
               "\": the communicator has ended, make a new one: ", failure_.message());
}

Status ShmCommunicator::CompleteMeeting() {
  if (connection_ != nullptr) return Ok();
  Group group;
  const Deadline deadline = Deadline::After(timeout_s());
  const Status met = meeting_->Complete(deadline, &group);
  if (group.segment.data() != nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    connection_ = std::make_unique<Connection>(std::move(group), rank(), size(), windows_.get());
  }
  return met;
}

template <typename Step>
Status ShmCommunicator::Run(const char* name, Step&& step) {
  struct Busy {
    std::atomic<bool>* flag;
    bool mine = !flag->exchange(true, std::memory_order_acquire);
    ~Busy() {
      if (mine) flag->store(false, std::memory_order_release);
    }
  } busy{&busy_};
  CHECK_ARG(busy.mine, ERROR_INVALID_PARAM, name, ": another thread is in a call of rank ", rank(),
            " of comm_domain \"", spec().comm_domain, "\"; one thread at a time");
  RETURN_IF_ERROR(CheckUsable());
  const Status met = CompleteMeeting();
  if (!met.ok()) return Fail(Error(met.code(), name, ": ", met.message()));
  const Status status = step(&connection_->exchange);
  if (status.ok() || connection_->exchange.refused()) return status;
  return Fail(status);
}

Status ShmCommunicator::Connect() {
  return Run("first contact", [](Exchange*) { return Ok(); });
}

Status ShmCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Run(Name(call.kind),
             [&](Exchange* exchange) { return shm::AllGatherV(exchange, call, timeout_s()); });
}

Status ShmCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Run(Name(CallKind::kReduceScatterV),
             [&](Exchange* exchange) { return shm::ReduceScatterV(exchange, call, timeout_s()); });
}

Status ShmCommunicator::DoBarrier() {
  return Run(Name(CallKind::kBarrier), [&](Exchange* exchange) {
    RETURN_IF_ERROR(exchange->Begin(CallInfo{}, Input{}, timeout_s()));
    return exchange->End();
  });
}

Status ShmCommunicator::Refuse(CallKind kind, const Status& reason) {
  return Run(Name(kind),
             [&](Exchange* exchange) { return exchange->Refuse(kind, reason, timeout_s()); });
}

Status ShmCommunicator::AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) {
  CHECK_ARG(bytes >= 0, ERROR_INVALID_PARAM, "a window must have 0 bytes or more, got ", bytes);
  RETURN_IF_ERROR(CheckUsable());
  return windows_->Allocate(bytes, window);
}

Status ShmCommunicator::Fail(const Status& status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.load(std::memory_order_acquire)) failure_ = status;
  failed_.store(true, std::memory_order_release);
  if (connection_ != nullptr) {
    connection_->endpoint.PublishFailure(status);
  } else {
    meeting_->Cancel(status);
  }
  return status;
}

void ShmCommunicator::Abort(const std::string& reason) {
  if (Inherited()) return;
  const Status status = Error(ERROR_ABORTED, "rank ", rank(), " aborted: ", reason);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.exchange(true, std::memory_order_acq_rel)) failure_ = status;
  if (connection_ != nullptr) connection_->endpoint.PublishFailure(status);
}

void ShmCommunicator::Close(const std::string& reason) {
  if (Inherited()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.exchange(true, std::memory_order_acq_rel)) {
    failure_ = Error(ERROR_ABORTED, "rank ", rank(), " closed it: ", reason);
  }
  meeting_->Cancel(Error(ERROR_PEER_LOST, reason));
  if (connection_ != nullptr) connection_->endpoint.PublishLeft(reason);
}

int64_t SegmentBytes(int rank_size) {
  return Layout::Bytes(rank_size);
}

Status Available() {
  return Ok();
}

Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator) {
  CHECK_ARG(spec.rank_size <= kMaxRanks, ERROR_UNSUPPORTED, "backend shm: at most ", kMaxRanks,
            " ranks, got rankSize ", spec.rank_size);
  RETURN_IF_ERROR(kernels::SetDefaultShare(spec.rank_size));
  // Threads meet inside their process whatever the launcher says, and in no other one.
  static const auto token = std::to_string(std::random_device()());
  JobIdentity job = {Concat("threads/", getpid(), "/", token), "COMM_MULTI_THREAD"};
  if (spec.comm_mode == COMM_MULTI_PROCESS) RETURN_IF_ERROR(FindJobIdentity(&job));
  *communicator = std::make_shared<ShmCommunicator>(spec, job);
  return Ok();
}

}  // namespace collops::shm

#include "comm/backends/shm/communicator.h"

#include <unistd.h>

#include <limits>
#include <random>

#include "comm/backends/shm/all_gather_v.h"
#include "comm/backends/shm/backend.h"
#include "comm/backends/shm/reduce_scatter_v.h"
#include "kernels/reduce.h"
#include "kernels/thread_pool.h"

namespace collops::shm {
namespace {

Status Left(const std::string& reason) {
  return Error(ERROR_PEER_LOST, reason);
}

}  // namespace

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
  CHECK_ARG(!Reduces(kind) || kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED,
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
  const Status met = meeting_->Complete(Deadline::After(timeout_s()), &group);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (group.segment.data() != nullptr) ConnectTo(std::move(group));
  // Abort() or Close() came from another thread meanwhile.
  return failed() ? failure_ : met;
}

void ShmCommunicator::ConnectTo(Group group) {
  connection_ = std::make_unique<Connection>(std::move(group), rank(), size(), windows_.get());
}

template <typename Step>
Status ShmCommunicator::Run(const char* name, Step&& step) {
  struct Busy {
    std::atomic<bool>* flag;
    bool mine = !flag->exchange(true);
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
  return Fail(status, connection_->exchange.sequence());
}

Status ShmCommunicator::Connect() {
  return Run("first contact", [](Exchange*) { return Ok(); });
}

Status ShmCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Run(Name(call.kind),
             [&](Exchange* exchange) { return shm::AllGatherV(exchange, call, timeout_s()); });
}

Status ShmCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Run(Name(call.kind),
             [&](Exchange* exchange) { return shm::ReduceScatterV(exchange, call, timeout_s()); });
}

Status ShmCommunicator::DoBarrier() {
  return RunEmpty(CallInfo{});
}

Status ShmCommunicator::Compare(const AllGatherVCall& call) {
  CallInfo info;
  info.kind = call.kind;
  info.dtype = call.dtype;
  info.root = call.root;
  info.x_shape = call.x_shape;
  info.counts = call.recv_counts;
  info.displs = call.rdispls;
  info.label = call.label;
  return RunEmpty(info);
}

Status ShmCommunicator::Compare(const ReduceScatterVCall& call) {
  CallInfo info;
  info.kind = call.kind;
  info.dtype = call.dtype;
  info.op = call.op;
  info.root = call.root;
  info.x_shape = call.x_shape;
  info.counts = call.send_counts;
  info.displs = call.sdispls;
  info.label = call.label;
  return RunEmpty(info);
}

// A call that the ranks agree on, and in which nothing moves.
Status ShmCommunicator::RunEmpty(const CallInfo& info) {
  return Run(Name(info.kind), [&](Exchange* exchange) {
    RETURN_IF_ERROR(exchange->Begin(info, Input{}, timeout_s()));
    return exchange->End();
  });
}

Status ShmCommunicator::FindLoss() {
  if (connection_ == nullptr) return Ok();
  // No rank has finished a call of this number, so none is passed over.
  const Status loss = connection_->endpoint.FindLoss(std::numeric_limits<uint64_t>::max());
  // Who ended the group and then left is known by what ended it.
  RETURN_IF_ERROR(connection_->endpoint.GroupFailure());
  return loss;
}

Status ShmCommunicator::FindLossAmong(const std::vector<int>& ranks, bool also_left) {
  if (connection_ == nullptr) return Ok();
  const Status loss = connection_->endpoint.FindLossAmong(ranks, also_left);
  if (also_left) RETURN_IF_ERROR(connection_->endpoint.GroupFailure());
  return loss;
}

Status ShmCommunicator::DoRunFused(const FusedCallSpec& spec, const FusedBody& body) {
  return Run(Name(spec.kind), [&](Exchange*) {
    ShmFusedCall& call = connection_->fused;
    RETURN_IF_ERROR(call.Begin(spec, timeout_s()));
    RETURN_IF_ERROR(body(&call));
    return call.End();
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

Status ShmCommunicator::Fail(const Status& status, uint64_t sequence) {
  const std::lock_guard<std::mutex> lock(mutex_);
  FailLocked(status, sequence);
  return status;
}

void ShmCommunicator::FailLocked(const Status& status, uint64_t sequence) {
  if (!failed_.exchange(true)) failure_ = status;
  meeting_->Cancel(failure_);
  if (connection_ != nullptr) {
    connection_->endpoint.PublishFailure(failure_, sequence);
    if (left_) connection_->endpoint.PublishLeft(failure_.message());
  }
}

void ShmCommunicator::Abort(const std::string& reason) {
  End(Error(ERROR_ABORTED, "rank ", rank(), " aborted: ", reason), false, reason);
}

void ShmCommunicator::Close(const std::string& reason) {
  End(Error(ERROR_ABORTED, "rank ", rank(), " closed it: ", reason), true, reason);
}

// The calls that this rank has made are whole, also on a rank that is still in the last of them.
void ShmCommunicator::EndGroup(const Status& status) {
  if (Inherited()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  Group group;
  const bool may_settle = connection_ == nullptr && !busy_.load() && !failed();
  if (may_settle && meeting_->Settle(&group)) ConnectTo(std::move(group));
  const bool met = connection_ != nullptr;
  FailLocked(status, met ? connection_->exchange.sequence() + 1 : kOutsideCalls);
}

// Ends this rank's part from any thread. A call that runs meanwhile ends for all ranks; without one
// a rank that closes leaves the others to their own, until they wait for it.
void ShmCommunicator::End(const Status& status, bool leave, const std::string& reason) {
  if (Inherited()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.exchange(true)) failure_ = status;
  left_ = left_ || leave;
  meeting_->Stop();
  const bool in_call = busy_.load();
  if (connection_ == nullptr) {
    if (in_call) return;  // CompleteMeeting() returns soon and sees it
    Group group;
    if (!meeting_->Settle(&group)) return meeting_->Cancel(leave ? Left(reason) : status);
    ConnectTo(std::move(group));
  }
  if (in_call || !leave) connection_->endpoint.PublishFailure(failure_, kOutsideCalls);
  if (leave) connection_->endpoint.PublishLeft(reason);
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

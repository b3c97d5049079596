#include "collops/comm/communicator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "collops/comm/call_queue.h"
#include "collops/comm/control/control.h"
#include "collops/comm/pairs/messenger.h"
#include "collops/comm/placement/placement.h"
#include "collops/core/trace/call_trace.h"
#include "collops/core/trace/lines.h"
#include "collops/core/trace/log.h"

namespace collops {
namespace {

// How long a rank waits for senders to read its verdicts after a call.
constexpr double kSettleS = 1e-3;

int64_t Sum(const int64_t* counts, int size) {
  return std::accumulate(counts, counts + size, int64_t{0});
}

MovedElements Nothing() {
  return {};
}

// The numbers by which a trace tells the communicators of a process apart.
std::atomic<uint64_t> lanes{0};

// The rank whose trace has the calls: the launcher's number of this process, which is the same in
// all its groups.
int FileRank(const CommunicatorSpec& spec) {
  const int own = spec.top_rank < 0 ? spec.rank : spec.top_rank;
  Placement placement;
  if (spec.comm_mode == COMM_MULTI_THREAD || !FindPlacement({}, &placement).ok()) return own;
  return placement.rank < 0 ? own : placement.rank;
}

}  // namespace

Communicator::Communicator(std::shared_ptr<control::Control> control)
    : control_(std::move(control)),
      spec_(control_->spec()),
      traced_(TraceEnabled()),
      lane_id_(++lanes) {
  recording::StartFromEnvironment();
}

Communicator::~Communicator() {
  for (const auto& [name, subgroup] : kept_subgroups_) {
    if (subgroup != nullptr) subgroup->Close("the communicator that it was split from has ended");
  }
  if (!control_->Inherited()) return;
  // In a child of fork() their threads do not exist, and their locks may be held for ever.
  (void)messenger_.release();
  (void)queue_owner_.release();
}

Status Communicator::FinishConnecting() {
  Connected();
  COLLOPS_RETURN_IF_ERROR(ConnectAll());
  if (pair_wire() != nullptr) messenger_ = std::make_unique<Messenger>(control_.get(), pair_wire());
  CallQueue* const queue = queue_.load(std::memory_order_acquire);
  if (queue != nullptr && messenger_ != nullptr) queue->SetMessenger(messenger_.get());
  connected_.store(true, std::memory_order_release);
  if (!ConnectsInEngine()) control_->MarkMet();
  return Ok();
}

template <typename Body>
Status Communicator::EnterNow(const char* name, Body&& body) {
  return control_->Run(name, [&]() -> Status {
    if (!connected_.load(std::memory_order_relaxed)) COLLOPS_RETURN_IF_ERROR(FinishConnecting());
    return body();
  });
}

template <typename Body>
Status Communicator::Enter(const char* name, Body&& body) {
  CallQueue* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr || queue->RunsHere()) return EnterNow(name, body);
  if (control_->Inherited()) return control_->CheckUsable(name);
  const CallQueue::Turn turn(queue, name);
  COLLOPS_RETURN_IF_ERROR(turn.status());
  return EnterNow(name, body);
}

// Messages of a rank that has started no call are calls like others: one thread at a time. After
// the first started call messages do not wait for the queue.
template <typename Body>
Status Communicator::EnterPairs(const char* name, Body&& body) {
  CallQueue* const queue = queue_.load(std::memory_order_acquire);
  if (queue == nullptr || !connected_.load(std::memory_order_acquire)) {
    return Enter(name, [&]() -> Status {
      const Status status = body();
      return status.ok() ? status : control_->Excuse(status);
    });
  }
  COLLOPS_RETURN_IF_ERROR(control_->CheckUsable(name));
  if (queue->RunsHere()) return control_->CatchAndEnd(name, body);
  const CallQueue::Caller caller(queue);
  if (!caller.alone()) return control_->SecondThread(name);
  return control_->CatchAndEnd(name, body);
}

const recording::Lane& Communicator::lane() {
  std::call_once(lane_described_, [&] {
    const bool threads = spec_.comm_mode == COMM_MULTI_THREAD;
    lane_ = {lane_id_,        spec_.comm_domain, spec_.backend, spec_.rank,
             spec_.rank_size, FileRank(spec_),   threads};
  });
  return lane_;
}

// Not one atomic step, which takes longer: a second thread gets an error instead of a number.
uint64_t Communicator::NextGroupCall() {
  const uint64_t number = group_calls_.load(std::memory_order_relaxed) + 1;
  group_calls_.store(number, std::memory_order_relaxed);
  return number;
}

template <typename Moved, typename Body>
Status Communicator::Traced(const char* name, uint64_t group, Moved&& moved, Body&& body) {
  if (!traced_ && !recording::On()) return body();
  const uint64_t line = traced_ ? ++num_calls_ : 0;
  const TracedCall call{name, line, group, UserCall::Number(), moved()};
  CallTrace trace(lane(), call);
  const Status status = body();
  trace.End(status);
  return status;
}

template <typename Moved, typename Body>
Status Communicator::Run(const CallName& name, Moved&& moved, Body&& body) {
  return Traced(name.called, NextGroupCall(), moved, [&] { return Enter(name.called, body); });
}

double Communicator::timeout_s() const {
  return control_->timeout_s();
}

void Communicator::set_timeout_s(double timeout_s) {
  control_->set_timeout_s(timeout_s);
}

bool Communicator::failed() const {
  return control_->failed();
}

Status Communicator::Connect() {
  constexpr const char* kName = "first contact";
  std::optional<recording::CallSpan> span;
  if (recording::On()) span.emplace(lane(), kName);
  return Enter(kName, [&] { return DoConnect(); });
}

Status Communicator::AllGatherV(const AllGatherVCall& call) {
  const auto moved = [&]() -> MovedElements {
    return {call.recv_counts[rank()], call.dtype, Sum(call.recv_counts, size())};
  };
  return Run(call.agreement->name(), moved, [&] { return DoAllGatherV(call); });
}

Status Communicator::ReduceScatterV(const ReduceScatterVCall& call) {
  const auto moved = [&]() -> MovedElements {
    return {Sum(call.send_counts, size()), call.dtype, call.send_counts[rank()]};
  };
  return Run(call.agreement->name(), moved, [&] { return DoReduceScatterV(call); });
}

Status Communicator::ExchangeV(const ExchangeVCall& call) {
  const auto moved = [&]() -> MovedElements {
    return {Sum(call.send_counts, size()), call.dtype, Sum(call.recv_counts, size())};
  };
  return Run(call.agreement->name(), moved, [&] { return DoExchangeV(call); });
}

Status Communicator::DoExchangeV(const ExchangeVCall& call) {
  return Error(ERROR_UNSUPPORTED, call.agreement->called(), ": backend ", spec().backend,
               " does not carry it yet");
}

Status Communicator::AllReduce(const AllReduceCall& call) {
  const auto moved = [&]() -> MovedElements { return {call.count, call.dtype, call.count}; };
  return Run(call.agreement->name(), moved, [&] { return DoAllReduce(call); });
}

Status Communicator::Broadcast(const BroadcastCall& call) {
  const auto moved = [&]() -> MovedElements {
    return {rank() == call.root ? call.count : 0, call.dtype, call.count};
  };
  return Run(call.agreement->name(), moved, [&] { return DoBroadcast(call); });
}

Status Communicator::CheckMessages(const char* name) const {
  if (messenger_ != nullptr) return Ok();
  const Status why = Supports(Primitive::kMessages, DType::kUndefined, ReduceOp::kSum);
  return Error(ERROR_UNSUPPORTED, name, ": ",
               why.ok() ? Concat("backend ", spec().backend, " has no messages") : why.message());
}

Status Communicator::Messages(const CallName& name, Transfer* list, int count, void* stream) {
  COLLOPS_RETURN_IF_ERROR(CheckTransfers(name.called, list, count, size()));
  const auto moved = [&]() -> MovedElements {
    int64_t elements[2] = {};
    for (int i = 0; i < count; ++i) elements[list[i].way] += list[i].elements;
    const DType dtype = count == 0 ? DType::kUndefined : list[0].dtype;
    return {elements[Transfer::kSend], dtype, elements[Transfer::kRecv]};
  };
  if (HasMessagesOnStreams()) {
    return Traced(name.called, 0, moved, [&] {
      return Enter(name.called, [&] { return DoMessages(name, list, count, stream); });
    });
  }
  const auto body = [&]() -> Status {
    return EnterPairs(name.called, [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(CheckMessages(name.called));
      return messenger_->Run(name.called, list, count);
    });
  };
  COLLOPS_RETURN_IF_ERROR(Traced(name.called, 0, moved, body));
  PayVerdicts(name.called);
  return Ok();
}

// A sender may wait for a verdict that finds room only after it has read earlier ones. If it does
// not read them now, the queue's thread posts the rest, as this rank's next call may be far off.
void Communicator::PayVerdicts(const char* name) {
  if (!messenger_->OwesVerdicts()) return;
  messenger_->Settle(kSettleS);
  if (!messenger_->OwesVerdicts() || !MakeQueue(name).ok()) return;
  // Without a thread the sender waits for this rank's next call.
  static_cast<void>(queue_.load(std::memory_order_acquire)->LookAfterMessages(name));
}

Status Communicator::RefuseMessages(const CallName& name, const Transfer* list, int count,
                                    const Status& reason) {
  if (HasMessagesOnStreams()) return Ok();
  WarnOfWait(reason);
  return Traced(name.called, 0, Nothing, [&] {
    return EnterPairs(name.called, [&]() -> Status {
      COLLOPS_RETURN_IF_ERROR(CheckMessages(name.called));
      return messenger_->Refuse(list, count, reason);
    });
  });
}

Status Communicator::ConnectAndPost(StartedCall* call) {
  return EnterNow(call->name, [&]() -> Status {
    const Status carried = CheckMessages(call->name);
    if (!carried.ok()) return control_->Excuse(carried);
    messenger_->Start(call->messages);
    return Ok();
  });
}

Status Communicator::Barrier(void* stream) {
  const Agreement agreement = Agreement("Barrier").InPlainWords("barrier", 1);
  return Run(agreement.name(), Nothing, [&] { return DoBarrier(agreement, stream); });
}

Status Communicator::DoBarrier(const Agreement& agreement, void* /*stream*/) {
  return DoAgree(agreement);
}

Status Communicator::KeepOnStream(const char* /*name*/, void* /*stream*/, KeepAlive /*kept*/) {
  return Ok();
}

Status Communicator::DoMessages(const CallName& name, Transfer* /*list*/, int /*count*/,
                                void* /*stream*/) {
  return CheckMessages(name.called);
}

Status Communicator::Agree(const Agreement& agreement) {
  return Run(agreement.name(), Nothing, [&] { return DoAgree(agreement); });
}

Status Communicator::DoAgree(const Agreement& agreement) {
  return control_->Agree(agreement);
}

Status Communicator::Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all) {
  const auto moved = [&]() -> MovedElements { return {bytes, DType::kUInt8, bytes * size()}; };
  return Run(agreement.name(), moved, [&] { return control_->Share(agreement, mine, bytes, all); });
}

Status Communicator::RunFused(const FusedCallSpec& spec, const FusedBody& body) {
  const auto moved = [&]() -> MovedElements {
    return {spec.x_count, spec.dtype, spec.output_count};
  };
  return Run(spec.agreement->name(), moved, [&] { return DoRunFused(spec, body); });
}

Status Communicator::Split(int color, int key, std::shared_ptr<Communicator>* subgroup) {
  return Run(CallName("Split", "split"), Nothing,
             [&] { return MakeSubgroup(color, key, false, subgroup); });
}

Status Communicator::KeptSplit(const std::string& name, int color, const std::vector<int>& members,
                               std::shared_ptr<Communicator>* subgroup) {
  return Enter("split", [&]() -> Status {
    const auto kept = kept_subgroups_.find(name);
    if (kept == kept_subgroups_.end()) {
      const auto own = std::find(members.begin(), members.end(), rank());
      const int key = static_cast<int>(own - members.begin());
      COLLOPS_RETURN_IF_ERROR(Traced("split", NextGroupCall(), Nothing, [&] {
        return control_->has_board() ? MakeSubgroup(color, key, true, subgroup)
                                     : MakeUnseen(name, color, members, subgroup);
      }));
      kept_subgroups_[name] = *subgroup;
    } else {
      *subgroup = kept->second;
    }
    return Ok();
  });
}

Status Communicator::DoRunFused(const FusedCallSpec& spec, const FusedBody& /*body*/) {
  return Error(ERROR_UNSUPPORTED, spec.agreement->called(), ": backend ", this->spec().backend,
               " has no windows for a fused call");
}

Status Communicator::Refuse(const char* name, const Status& reason) {
  static_cast<void>(NextGroupCall());  // the other ranks make it
  WarnOfWait(reason);
  return Enter(name, [&] { return DoRefuse(name, reason); });
}

// First contact may take until the time-out: the user reads now why the call fails.
void Communicator::WarnOfWait(const Status& reason) const {
  if (connected_.load(std::memory_order_acquire) || !control_->CheckUsable("").ok()) return;
  Log(LogLevel::kWarning,
      Concat("collops: warning: ", reason.message(), " (the call returns this error ",
             "when all ranks have entered it)"));
}

Status Communicator::DoRefuse(const char* name, const Status& reason) {
  return control_->Refuse(name, reason);
}

Status Communicator::Check() {
  // Before first contact there is nothing to ask, and a call would wait for it.
  if (!connected_.load(std::memory_order_acquire)) return control_->CheckUsable("check");
  return Enter("check", [&] { return DoCheck(); });
}

void Communicator::Abort(const std::string& reason) {
  control_->Abort(reason);
}

}  // namespace collops

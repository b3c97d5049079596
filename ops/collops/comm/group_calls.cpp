// The calls of a communicator: each is a scope around the backend's function.

#include <numeric>
#include <optional>
#include <utility>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/call_queue.h"
#include "collops/comm/call_scope.h"
#include "collops/comm/control/control.h"
#include "collops/comm/even_split.h"
#include "collops/comm/pairs/messenger.h"
#include "collops/comm/placement/placement.h"
#include "collops/core/trace/log.h"
#include "collops/core/trace/spans.h"

namespace collops {
namespace {

// How long a rank waits for senders to read its verdicts after a call.
constexpr double kSettleS = 1e-3;

int64_t Sum(const int64_t* counts, int size) {
  return std::accumulate(counts, counts + size, int64_t{0});
}

// The numbers by which a trace tells the communicators of a process apart.
std::atomic<uint64_t> lanes{0};

// The rank whose trace has the calls: the launcher's number of this process, which is the same in
// all its groups.
int FileRank(const control::GroupSpec& spec) {
  const int own = spec.top_rank < 0 ? spec.rank : spec.top_rank;
  Placement placement;
  if (spec.comm_mode == COMM_MULTI_THREAD || !FindPlacement({}, &placement).ok()) return own;
  return placement.rank < 0 ? own : placement.rank;
}

}  // namespace

BackendCommunicator::BackendCommunicator(std::shared_ptr<control::Control> control)
    : Communicator(control->spec()),
      control_(std::move(control)),
      group_spec_(control_->spec()),
      traced_(TraceEnabled()),
      lane_id_(++lanes) {
  recording::StartFromEnvironment();
}

BackendCommunicator::~BackendCommunicator() {
  for (const auto& [name, subgroup] : kept_subgroups_) {
    if (subgroup != nullptr) subgroup->Close("the communicator that it was split from has ended");
  }
  if (!control_->Inherited()) return;
  // In a child of fork() their threads do not exist, and their locks may be held for ever.
  (void)messenger_.release();
  (void)queue_owner_.release();
}

Status BackendCommunicator::FinishConnecting() {
  Connected();
  COLLOPS_RETURN_IF_ERROR(ConnectAll());
  const PairWires wires = pair_wires();
  if (!wires.routes.empty()) messenger_ = std::make_unique<Messenger>(control_.get(), wires);
  CallQueue* const queue = queue_.load(std::memory_order_acquire);
  if (queue != nullptr && messenger_ != nullptr) queue->SetMessenger(messenger_.get());
  connected_.store(true, std::memory_order_release);
  if (!ConnectsInEngine()) control_->MarkMet();
  return Ok();
}

PairWires BackendCommunicator::pair_wires() {
  return {};
}

const recording::Lane& BackendCommunicator::lane() {
  std::call_once(lane_described_, [&] {
    const bool threads = spec().comm_mode == COMM_MULTI_THREAD;
    lane_ = {lane_id_, spec().comm_domain, spec().backend, rank(),
             size(),   FileRank(spec()),   threads};
  });
  return lane_;
}

double Communicator::timeout_s() const {
  return backend().control().timeout_s();
}

void Communicator::set_timeout_s(double timeout_s) {
  backend().control().set_timeout_s(timeout_s);
}

bool Communicator::failed() const {
  return backend().control().failed();
}

Status Communicator::Connect() {
  constexpr const char* kName = "first contact";
  BackendCommunicator& group = backend();
  std::optional<recording::CallSpan> span;
  if (recording::On()) span.emplace(group.lane(), kName);
  CallScope scope(&group, kName, CallScope::Kind::kUntraced);
  return scope.Run([&] { return group.DoConnect(); });
}

Status Communicator::AllGatherV(const AllGatherVCall& call) {
  CallScope scope(&backend(), call.agreement->called());
  if (scope.traced()) {
    scope.SetMoved(call.recv_counts[rank()], call.dtype, Sum(call.recv_counts, size()));
  }
  return scope.Run([&] { return backend().DoAllGatherV(call); });
}

Status Communicator::ReduceScatterV(const ReduceScatterVCall& call) {
  CallScope scope(&backend(), call.agreement->called());
  if (scope.traced()) {
    scope.SetMoved(Sum(call.send_counts, size()), call.dtype, call.send_counts[rank()]);
  }
  return scope.Run([&] { return backend().DoReduceScatterV(call); });
}

Status Communicator::ExchangeV(const ExchangeVCall& call) {
  CallScope scope(&backend(), call.agreement->called());
  if (scope.traced()) {
    scope.SetMoved(Sum(call.send_counts, size()), call.dtype, Sum(call.recv_counts, size()));
  }
  return scope.Run([&] { return backend().DoExchangeV(call); });
}

Status BackendCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Error(ERROR_UNSUPPORTED, call.agreement->called(), ": backend ", spec().backend,
               " does not carry it yet");
}

Status Communicator::AllReduce(const AllReduceCall& call) {
  CallScope scope(&backend(), call.agreement->called());
  scope.SetMoved(call.count, call.dtype, call.count);
  return scope.Run([&] { return backend().DoAllReduce(call); });
}

// The counts are local to this function, so the calls have no `keep`: a device backend copies what
// it reads later. The ranks compare the collective's own name and terms.
Status BackendCommunicator::DoAllReduce(const AllReduceCall& call) {
  const EvenSplit split(call.count, size());
  COLLOPS_RETURN_IF_ERROR(DoReduceScatterV(split.Reduce(call, rank())));
  return DoAllGatherV(split.Gather(call, rank()));
}

Status Communicator::Broadcast(const BroadcastCall& call) {
  CallScope scope(&backend(), call.agreement->called());
  scope.SetMoved(rank() == call.root ? call.count : 0, call.dtype, call.count);
  return scope.Run([&] { return backend().DoBroadcast(call); });
}

// As DoAllReduce(), without a `keep`.
Status BackendCommunicator::DoBroadcast(const BroadcastCall& call) {
  std::vector<int64_t> counts(static_cast<size_t>(size()));
  const std::vector<int64_t> displs(counts.size());
  counts[static_cast<size_t>(call.root)] = call.count;
  AllGatherVCall gather;
  gather.agreement = call.agreement;
  gather.dtype = call.dtype;
  gather.x = call.data;
  gather.output = call.data;
  gather.recv_counts = counts.data();
  gather.rdispls = displs.data();
  gather.stream = call.stream;
  return DoAllGatherV(gather);
}

Status BackendCommunicator::CheckMessages(const char* name) const {
  if (messenger_ != nullptr) return Ok();
  const Status why = Supports(Primitive::kMessages, DType::kUndefined, ReduceOp::kSum);
  return Error(ERROR_UNSUPPORTED, name, ": ",
               why.ok() ? Concat("backend ", spec().backend, " has no messages") : why.message());
}

Status Communicator::Messages(const CallName& name, Transfer* list, int count, void* stream) {
  COLLOPS_RETURN_IF_ERROR(CheckTransfers(name.called, list, count, size()));
  BackendCommunicator& group = backend();
  const bool on_stream = HasMessagesOnStreams();
  CallScope scope(&group, name.called,
                  on_stream ? CallScope::Kind::kOnStream : CallScope::Kind::kMessages);
  if (scope.traced()) {
    int64_t elements[2] = {};
    for (int i = 0; i < count; ++i) elements[list[i].way] += list[i].elements;
    const DType dtype = count == 0 ? DType::kUndefined : list[0].dtype;
    scope.SetMoved(elements[Transfer::kSend], dtype, elements[Transfer::kRecv]);
  }
  COLLOPS_RETURN_IF_ERROR(scope.Run([&]() -> Status {
    if (on_stream) return group.DoMessages(name, list, count, stream);
    COLLOPS_RETURN_IF_ERROR(group.CheckMessages(name.called));
    return group.messenger_->Run(name.called, list, count);
  }));
  if (!on_stream) group.PayVerdicts(name.called);
  return Ok();
}

// A sender may wait for a verdict that finds room only after it has read earlier ones. If it does
// not read them now, the queue's thread posts the rest, as this rank's next call may be far off.
void BackendCommunicator::PayVerdicts(const char* name) {
  if (!messenger_->OwesVerdicts()) return;
  messenger_->Settle(kSettleS);
  if (!messenger_->OwesVerdicts() || !MakeQueue(name).ok()) return;
  // Without a thread the sender waits for this rank's next call.
  static_cast<void>(queue_.load(std::memory_order_acquire)->LookAfterMessages(name));
}

Status Communicator::RefuseMessages(const CallName& name, const Transfer* list, int count,
                                    const Status& reason) {
  if (HasMessagesOnStreams()) return Ok();
  BackendCommunicator& group = backend();
  group.WarnOfWait(reason);
  CallScope scope(&group, name.called, CallScope::Kind::kMessages);
  return scope.Run([&]() -> Status {
    COLLOPS_RETURN_IF_ERROR(group.CheckMessages(name.called));
    return group.messenger_->Refuse(list, count, reason);
  });
}

Status Communicator::Barrier(void* stream) {
  const Agreement agreement = Agreement("Barrier").InPlainWords("barrier", 1);
  CallScope scope(&backend(), agreement.called());
  return scope.Run([&] { return backend().DoBarrier(agreement, stream); });
}

Status BackendCommunicator::DoBarrier(const Agreement& agreement, void* /*stream*/) {
  return DoAgree(agreement);
}

Status BackendCommunicator::DoMessages(const CallName& name, Transfer* /*list*/, int /*count*/,
                                       void* /*stream*/) {
  return CheckMessages(name.called);
}

Status Communicator::Agree(const Agreement& agreement) {
  CallScope scope(&backend(), agreement.called());
  return scope.Run([&] { return backend().DoAgree(agreement); });
}

Status BackendCommunicator::DoAgree(const Agreement& agreement) {
  return control_->Agree(agreement);
}

Status Communicator::AgreeOnHost(const Agreement& agreement, const Status& own, void* stream) {
  CallScope scope(&backend(), agreement.called());
  return scope.Run([&] { return backend().DoAgreeOnHost(agreement, own, stream); });
}

Status Communicator::Share(const Agreement& agreement, const void* mine, int64_t bytes, void* all) {
  CallScope scope(&backend(), agreement.called());
  scope.SetMoved(bytes, DType::kUInt8, bytes * size());
  return scope.Run([&] { return backend().control().Share(agreement, mine, bytes, all); });
}

Status Communicator::RunFused(const FusedCallSpec& spec, const FusedBody& body) {
  CallScope scope(&backend(), spec.agreement->called());
  scope.SetMoved(spec.x_count, spec.dtype, spec.output_count);
  return scope.Run([&] { return backend().DoRunFused(spec, body); });
}

Status BackendCommunicator::DoRunFused(const FusedCallSpec& spec, const FusedBody& /*body*/) {
  return Error(ERROR_UNSUPPORTED, spec.agreement->called(), ": backend ", this->spec().backend,
               " has no windows for a fused call");
}

Status Communicator::Refuse(const char* name, const Status& reason) {
  backend().WarnOfWait(reason);
  CallScope scope(&backend(), name, CallScope::Kind::kRefused);
  return scope.Run([&] { return backend().DoRefuse(name, reason); });
}

// First contact may take until the time-out: the user reads now why the call fails.
void BackendCommunicator::WarnOfWait(const Status& reason) const {
  if (connected_.load(std::memory_order_acquire) || !control_->CheckUsable("").ok()) return;
  Log(LogLevel::kWarning,
      Concat("collops: warning: ", reason.message(), " (the call returns this error ",
             "when all ranks have entered it)"));
}

Status BackendCommunicator::DoRefuse(const char* name, const Status& reason) {
  return control_->Refuse(name, reason);
}

Status Communicator::Check() {
  BackendCommunicator& group = backend();
  // Before first contact there is nothing to ask, and a call would wait for it.
  if (!group.connected_.load(std::memory_order_acquire))
    return group.control().CheckUsable("check");
  CallScope scope(&group, "check", CallScope::Kind::kUntraced);
  return scope.Run([&] { return group.DoCheck(); });
}

void Communicator::Abort(const std::string& reason) {
  backend().control().Abort(reason);
}

}  // namespace collops

#include "comm/backends/hccl/communicator.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/backends/hccl/calls/collectives.h"
#include "comm/backends/hccl/calls/counts.h"
#include "comm/backends/hccl/library/device_scope.h"
#include "comm/backends/hccl/library/error.h"
#include "comm/backends/hccl/library/types.h"
#include "comm/backends/hccl/meet.h"
#include "comm/user_calls.h"
#include "core/deadline.h"
#include "core/interrupt.h"

namespace collops::hccl {
namespace {

// How long the destructor waits for calls. A caller that needs longer calls Close() first.
constexpr double kDestroyedS = 2.0;

// Control's errors in first contact begin with its name already.
Status InCall(const char* name, const Status& status) {
  const std::string begin = Concat(name, ": ");
  if (status.ok() || status.message().compare(0, begin.size(), begin) == 0) return status;
  return Error(status.code(), begin, status.message());
}

// The messages of these two names are one each, and their peers make the other.
bool IsBatch(const char* name) {
  return std::strcmp(name, "Send") != 0 && std::strcmp(name, "Recv") != 0;
}

}  // namespace

HcclCommunicator::HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   Comm comm, bool compares)
    : Communicator(std::move(control)),
      compares_(compares),
      engine_(api, rank(), size()),
      compute_(api, device_index_) {
  static_cast<void>(FindDevice());  // an error is reported in first contact
  if (comm != nullptr) caller_comm_ = CommHandle::OfCaller(api, size(), comm);
}

HcclCommunicator::~HcclCommunicator() {
  WaitForStreams(kDestroyedS);
  control().Close("it closed its communicator");
  Close("it closed its communicator");
}

Status HcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  switch (primitive) {
    case Primitive::kGather:
    case Primitive::kExchange:
    case Primitive::kMessages:
      return Ok();
    case Primitive::kReduce:
      return FindReductionV(dtype, op, &type, &reduction);
    case Primitive::kEvenReduce:
      return FindReduction(dtype, op, &type, &reduction);
    case Primitive::kWindows:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend hccl has no windows: HCCL reads any NPU memory");
}

Status HcclCommunicator::AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) {
  return Supports(Primitive::kWindows, DType::kUndefined, ReduceOp::kSum);
}

template <typename Step>
Status HcclCommunicator::RunOnDevice(const char* name, Step&& step) {
  Status found = device_index_ < 0 ? FindDevice() : Ok();
  if (found.ok()) {
    const DeviceScope scope(engine_.api(), device_index_);
    if (scope.status().ok()) return step();
    found = scope.status();
  }
  return Decline(name, InCall(name, found));
}

Status HcclCommunicator::DoConnect() {
  return RunOnDevice(kFirstContact, [&] { return MeetOnce(kFirstContact); });
}

Status HcclCommunicator::KeepOnStream(void* stream, KeepAlive kept) {
  return RunOnDevice("LinearParallel", [&] {
    return engine_.Keep(stream, std::move(kept), "LinearParallel", UserCall::Number());
  });
}

// A call of several steps: compared as a whole, if calls are compared.
Status HcclCommunicator::DoAgree(const Agreement& agreement) {
  return RunOnDevice(agreement.op(), [&]() -> Status {
    RETURN_IF_ERROR(MeetOnce(agreement.op()));
    RETURN_IF_ERROR(CheckPeers(agreement.op(), compares_));
    return compares_ ? control().Agree(agreement) : Ok();
  });
}

Status HcclCommunicator::FindDevice() {
  int32_t device = -1;
  const Status status =
      ToStatus(engine_.api(), engine_.api().get_device(&device), "aclrtGetDevice");
  CHECK_ARG(status.ok(), ERROR_INVALID_PARAM, "no NPU is chosen in this thread: call ",
            "torch.npu.set_device(n), or aclrtSetDevice, first (", status.message(), ")");
  device_index_ = device;
  return Ok();
}

Status HcclCommunicator::MeetOnce(const char* name) {
  if (engine_.connected()) return Ok();
  if (caller_comm_ != nullptr) {
    const Abilities abilities = AbilitiesOf(engine_.api(), false);
    return InCall(name, engine_.Connect(caller_comm_, abilities));
  }
  const uint64_t step = control().step_number();
  const Status met =
      control().WithOthersUnmet(InCall(name, Meet(&control(), compares_, device_index_, &engine_)));
  if (met.ok()) control().MarkMet();
  // Rank 0's root info may fail before the others hear of this rank.
  const bool told = !control().has_board() || control().step_number() != step;
  return met.ok() || told ? met : Decline(name, met);
}

// Tells the other ranks why this rank refuses: in the exchange of first contact, later in the
// comparison of the call. Without comparisons the others may have put their call on a stream, so
// the group ends, and their next call has the reason. What HCCL cannot do is refused on all ranks
// alike, and ends nothing.
Status HcclCommunicator::DoRefuse(const char* name, const Status& reason) {
  if (!control().has_board()) return Ok();
  if (!engine_.connected()) return control().Refuse(kFirstContact, reason);
  if (compares_) return control().Refuse(name, reason);
  if (reason.code() == ERROR_UNSUPPORTED) return Ok();
  control().EndAll(
      Error(ERROR_RANK_MISMATCH, name, ": rank ", rank(), " refused its part: ", reason.message()));
  return Ok();
}

// Refuses with an error of this rank alone.
Status HcclCommunicator::Decline(const char* name, const Status& reason) {
  const Status told = DoRefuse(name, reason);
  if (!told.ok()) static_cast<void>(control().Fail(told, control().step_number()));
  return control().Excuse(reason);
}

// Without waiting: whether all ranks are still there and all earlier calls have succeeded.
Status HcclCommunicator::CheckPeers(const char* name, bool is_step) {
  const uint64_t step = control().step_number() + 1;
  const uint64_t call = is_step ? CallNumber(step) : UserCall::Number();
  RETURN_IF_ERROR(control().Peek(name, call));
  return InCall(name, engine_.CheckHealth());
}

template <typename Step>
Status HcclCommunicator::Enqueue(const char* name, const Agreement* agreement, void* stream,
                                 KeepAlive keep, Step&& step) {
  if (stream == nullptr) {
    return Decline(name, Error(ERROR_INVALID_STREAM, name,
                               ": there is no stream: pass NPU tensors, or stream="));
  }
  return RunOnDevice(name, [&]() -> Status {
    RETURN_IF_ERROR(MeetOnce(name));
    const bool is_step = compares_ && agreement != nullptr;
    RETURN_IF_ERROR(CheckPeers(name, is_step));
    if (is_step) {
      RETURN_IF_ERROR(control().Agree(*agreement));
      // A rank whose call compared equal may have failed since.
      RETURN_IF_ERROR(CheckPeers(name, is_step));
    }
    const Status status = step(&keep);
    // Also after a failed step: its first part may be on the stream.
    const Status kept = engine_.Keep(stream, std::move(keep), name, UserCall::Number());
    return InCall(name, status.ok() ? kept : status);
  });
}

// Nobody waits for anybody in an empty call, so a rank may have left that has made it.
template <typename Call, typename Step>
Status HcclCommunicator::Enqueue(const Call& call, bool is_empty, Step&& step) {
  const char* const name = call.agreement->op();
  if (is_empty && !compares_ && call.stream != nullptr) {
    return RunOnDevice(name, [&]() -> Status {
      RETURN_IF_ERROR(MeetOnce(name));
      KeepAlive keep = call.keep;
      return InCall(name, step(&keep));
    });
  }
  return Enqueue(call.agreement->op(), call.agreement, call.stream, call.keep, step);
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  const bool is_empty = AreZero(call.recv_counts, size());
  return Enqueue(call, is_empty,
                 [&](KeepAlive* keep) { return hccl::AllGatherV(engine_, call, keep); });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const Status apart = CheckApart(call, size());
  if (!apart.ok()) return Decline(call.agreement->op(), apart);
  const bool is_empty = AreZero(call.send_counts, size());
  return Enqueue(call, is_empty,
                 [&](KeepAlive* keep) { return hccl::ReduceScatterV(engine_, call, keep); });
}

Status HcclCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Enqueue(call, false,
                 [&](KeepAlive* keep) { return hccl::ExchangeV(engine_, call, keep); });
}

Status HcclCommunicator::DoAllReduce(const AllReduceCall& call) {
  return Enqueue(call, call.count == 0, [&](KeepAlive*) { return hccl::AllReduce(engine_, call); });
}

Status HcclCommunicator::DoBroadcast(const BroadcastCall& call) {
  return Enqueue(call, call.count == 0, [&](KeepAlive*) { return hccl::Broadcast(engine_, call); });
}

// Nothing compares messages, not even with COLLOPS_CHECK=1: only two ranks take part.
Status HcclCommunicator::DoMessages(const char* name, Transfer* list, int count, void* stream) {
  const Status check = CheckTransfers(name, list, count, rank());
  if (!check.ok()) return control().Excuse(check);
  if (count == 0) return Ok();  // there is no tensor to find a stream by
  RETURN_IF_ERROR(Enqueue(name, nullptr, stream, nullptr, [&](KeepAlive*) {
    return hccl::Messages(engine_, list, count, IsBatch(name), stream);
  }));
  for (int i = 0; i < count; ++i) {
    if (list[i].way == Transfer::kRecv) list[i].source = list[i].peer;
  }
  return Ok();
}

// The host waits for all ranks, and what is put on the stream later for all ranks' streams.
Status HcclCommunicator::DoBarrier(const Agreement& agreement, void* stream) {
  const bool waits = control().has_board() || stream == nullptr;
  if (waits) RETURN_IF_ERROR(control().Agree(agreement));
  if (stream == nullptr) return Ok();
  return Enqueue(agreement.op(), nullptr, stream, nullptr, [&](KeepAlive*) {
    return ToStatus(engine_.api(), engine_.api().barrier(engine_.comm(), stream), "HcclBarrier");
  });
}

// A group that was connected by a rank table must be split by HCCL. Others are split by HCCL if
// they are connected and the keys keep their order; else the subgroup meets by a root info of its
// own. What HCCL does not split ends no group.
Status HcclCommunicator::DoSplit(const std::vector<int>& members, int index,
                                 const std::string& name, std::shared_ptr<void>* part) {
  return RunOnDevice("Split", [&]() -> Status {
    const bool needed = spec().table != nullptr || !control().has_board();
    if (needed) RETURN_IF_ERROR(MeetOnce("Split"));
    if (!engine_.connected()) return Ok();
    std::shared_ptr<CommHandle> made;
    const Status status =
        CommHandle::Split(engine_.handle(), members, index, Concat("collops", name), &made);
    const bool must = !control().has_board() || engine_.handle()->is_from_table();
    if (status.code() == ERROR_UNSUPPORTED && !must) return Ok();
    if (made != nullptr) *part = std::make_shared<PartInSpec>(std::move(made));
    const Status said = InCall("Split", status);
    return status.code() == ERROR_UNSUPPORTED ? control().Excuse(said) : said;
  });
}

void HcclCommunicator::OnLeave() {
  WaitForStreams(control().timeout_s());
}

// A slower rank checks that all ranks are there before it issues calls that this rank's streams
// wait for, so this rank stays until they have ended, or a rank has left or the group has failed.
void HcclCommunicator::WaitForStreams(double limit_s) {
  if (control().Inherited() || !control().has_board()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  const Deadline deadline = Deadline::After(limit_s);
  static_cast<void>(control().Alone("Close", [&] {
    while (!control().failed() && !engine_.IsIdle(device_index_) && control().Peek("Close").ok() &&
           !deadline.Passed() && !Interrupted()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return Ok();
  }));
}

void HcclCommunicator::OnClose() {
  if (control().Inherited()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  // If a call runs in another thread, it still needs the engine; the destructor releases it.
  if (control().in_call()) return;
  if (engine_.Release(device_index_)) compute_.Release();
  if (spec().engine_part != nullptr)
    std::static_pointer_cast<PartInSpec>(spec().engine_part)->reset();
}

}  // namespace collops::hccl

#include "comm/backends/hccl/communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "comm/backends/hccl/all_gather_v.h"
#include "comm/backends/hccl/device_scope.h"
#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/reduce_scatter_v.h"
#include "comm/backends/hccl/types.h"
#include "comm/user_calls.h"
#include "core/deadline.h"
#include "core/interrupt.h"

namespace collops::hccl {
namespace {

constexpr const char* kFirstContact = "first contact";
// How long the destructor waits for calls. A caller that needs longer calls Close() first.
constexpr double kDestroyedS = 2.0;

Status NotYet(const char* what) {
  return Error(ERROR_UNSUPPORTED, "backend hccl: ", what, " do not run on it yet");
}

Status InCall(const char* name, const Status& status) {
  return status.ok() ? Ok() : Error(status.code(), name, ": ", status.message());
}

}  // namespace

HcclCommunicator::HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api,
                                   Comm comm, bool compares)
    : Communicator(std::move(control)), compares_(compares), engine_(api) {
  if (comm != nullptr) engine_.Adopt(comm);
  static_cast<void>(FindDevice());  // an error is reported in first contact
}

HcclCommunicator::~HcclCommunicator() {
  WaitForStreams(kDestroyedS);
  control().Close("it closed its communicator");
  Close("it closed its communicator");
}

Status HcclCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  switch (primitive) {
    case Primitive::kGather:
      return Ok();
    case Primitive::kReduce: {
      DataType type = DataType::kInt8;
      Reduction reduction = Reduction::kSum;
      return FindReduction(dtype, op, &type, &reduction);
    }
    case Primitive::kComposed:
      return NotYet("collectives other than AllGatherV and ReduceScatterV");
    case Primitive::kExchange:
      return NotYet("all-to-all calls");
    case Primitive::kMessages:
      return NotYet("Send and Recv");
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
  return RunOnDevice(kFirstContact, [&] { return Meet(kFirstContact); });
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

Status HcclCommunicator::Meet(const char* name) {
  if (engine_.comm() != nullptr) return Ok();
  RootInfo root_info = {};
  RETURN_IF_ERROR(ShareRootInfo(name, &root_info));
  return InCall(name, engine_.Initialise(rank(), size(), root_info));
}

// Rank 0 gets the root info from HCCL and shares it. COLLOPS_CHECK is part of the agreement: ranks
// that compare calls and ranks that do not would wait for each other later.
Status HcclCommunicator::ShareRootInfo(const char* name, RootInfo* root_info) {
  if (rank() == 0) {
    const Status found =
        ToStatus(engine_.api(), engine_.api().get_root_info(root_info), "HcclGetRootInfo");
    if (!found.ok()) return Decline(name, InCall(name, found));
  }
  Agreement agreement(kFirstContact);
  agreement.EqualText("COLLOPS_CHECK", compares_ ? "1" : "0");
  std::vector<RootInfo> all(static_cast<size_t>(size()));
  RETURN_IF_ERROR(control().Share(agreement, root_info, kRootInfoBytes, all.data()));
  *root_info = all[0];
  return Ok();
}

// Tells the other ranks why this rank refuses: in the exchange of the root info, later in the
// comparison of the call. Without comparisons the other ranks get an error from HCCL only.
Status HcclCommunicator::DoRefuse(const char* name, const Status& reason) {
  const bool meets = control().has_board() && engine_.comm() == nullptr;
  if (!meets && !compares_) return Ok();
  return control().Refuse(meets ? kFirstContact : name, reason);
}

// Refuses with an error of this rank alone.
Status HcclCommunicator::Decline(const char* name, const Status& reason) {
  const Status told = DoRefuse(name, reason);
  if (!told.ok()) static_cast<void>(control().Fail(told, control().step_number()));
  return control().Excuse(reason);
}

// Without waiting: whether all ranks are still there and all earlier calls have succeeded.
Status HcclCommunicator::CheckPeers(const char* name) {
  const uint64_t step = control().step_number() + 1;
  // Without comparisons a call is no step.
  const uint64_t call = compares_ ? CallNumber(step) : UserCall::Number();
  RETURN_IF_ERROR(control().Peek(name, call));
  return InCall(name, engine_.CheckHealth());
}

template <typename Call, typename Step>
Status HcclCommunicator::Enqueue(const Call& call, Step&& step) {
  const char* const name = call.agreement->op();
  if (call.stream == nullptr) {
    return Decline(name, Error(ERROR_INVALID_STREAM, name,
                               ": there is no stream: pass NPU tensors and stream= to ",
                               "collops.Operation; the plain level does not run on hccl yet"));
  }
  return RunOnDevice(name, [&]() -> Status {
    RETURN_IF_ERROR(Meet(name));
    RETURN_IF_ERROR(CheckPeers(name));
    if (compares_) {
      RETURN_IF_ERROR(control().Agree(*call.agreement));
      // A rank whose call compared equal may have failed since.
      RETURN_IF_ERROR(CheckPeers(name));
    }
    KeepAlive keep = call.keep;
    const Status status = step(&keep);
    // Also after a failed step: its first part may be on the stream.
    const Status kept = engine_.Keep(call.stream, std::move(keep));
    return InCall(name, status.ok() ? kept : status);
  });
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(
      call, [&](KeepAlive* keep) { return hccl::AllGatherV(engine_, call, rank(), size(), keep); });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&](KeepAlive* keep) {
    return hccl::ReduceScatterV(engine_, call, rank(), size(), keep);
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
  if (!control().in_call()) engine_.Release(device_index_);
}

}  // namespace collops::hccl

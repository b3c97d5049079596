#include "comm/backends/hccl/communicator.h"

#include <chrono>
#include <thread>
#include <utility>

#include "comm/backends/hccl/all_gather_v.h"
#include "comm/backends/hccl/device_scope.h"
#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/reduce_scatter_v.h"
#include "comm/backends/hccl/types.h"
#include "core/deadline.h"
#include "core/interrupt.h"

namespace collops::hccl {
namespace {

constexpr const char* kFirstContact = "first contact";
// Whoever wants more of its calls than this closes the communicator itself.
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
  static_cast<void>(FindDevice());  // asked again in first contact
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

// Rank 0 asks HCCL where to meet and tells the others. Who compares calls and who does not would
// wait for each other later.
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

// Tells the others why this rank does not come to what they wait for: the root info at first, and
// then the comparison, if there is one. Without comparisons they find out from HCCL.
Status HcclCommunicator::DoRefuse(const char* name, const Status& reason) {
  const bool meets = control().has_board() && engine_.comm() == nullptr;
  if (!meets && !compares_) return Ok();
  return control().Refuse(meets ? kFirstContact : name, reason);
}

// An error of this rank alone.
Status HcclCommunicator::Decline(const char* name, const Status& reason) {
  const Status told = DoRefuse(name, reason);
  if (!told.ok()) static_cast<void>(control().Fail(told, control().step_number()));
  return control().Excuse(reason);
}

// Looks without waiting whether all ranks are still there and all earlier calls went well.
Status HcclCommunicator::CheckPeers(const char* name) {
  RETURN_IF_ERROR(control().Peek(name));
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
      // Another rank that compared well may have failed since.
      RETURN_IF_ERROR(CheckPeers(name));
    }
    Kept keep = call.keep;
    const Status status = step(&keep);
    // Also of a step that failed: its first part may be on the stream.
    const Status kept = engine_.Keep(call.stream, std::move(keep));
    return InCall(name, status.ok() ? kept : status);
  });
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Enqueue(call,
                 [&](Kept* keep) { return hccl::AllGatherV(engine_, call, rank(), size(), keep); });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(
      call, [&](Kept* keep) { return hccl::ReduceScatterV(engine_, call, rank(), size(), keep); });
}

void HcclCommunicator::OnLeave() {
  WaitForStreams(control().timeout_s());
}

// A slower rank asks whether all ranks are there before it comes to the calls that wait for it on
// this rank's streams. It need not come any more once a rank has left or the group has ended.
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
  // A call that runs in another thread still needs the engine; the destructor comes here again.
  if (!control().in_call()) engine_.Release(device_index_);
}

}  // namespace collops::hccl

#include "comm/backends/hccl/communicator.h"

#include <utility>

#include "comm/backends/hccl/all_gather_v.h"
#include "comm/backends/hccl/device_scope.h"
#include "comm/backends/hccl/error.h"
#include "comm/backends/hccl/reduce_scatter_v.h"
#include "comm/backends/hccl/types.h"

namespace collops::hccl {
namespace {

// What tells ranks about ranks lies in host memory and goes over the host connection.
bool IsOfHost(CallKind kind) {
  return kind == CallKind::kSizeExchange || kind == CallKind::kSplit;
}

// Whether HCCL's two V calls carry a call of that kind here.
bool IsCarried(CallKind kind) {
  return kind == CallKind::kAllGatherV || kind == CallKind::kReduceScatterV;
}

// What the host connection says, and another rank's failure in such a call, has the name already.
Status Named(const char* name, const Status& status) {
  const std::string prefix = Concat(name, ": ");
  if (status.ok() || status.message().compare(0, prefix.size(), prefix) == 0) return status;
  return Error(status.code(), prefix, status.message());
}

}  // namespace

HcclCommunicator::HcclCommunicator(const CommunicatorSpec& spec, const Api& api, Comm comm,
                                   std::shared_ptr<Communicator> host, bool compares)
    : Communicator(spec),
      fork_generation_(ForkGeneration()),
      host_(std::move(host)),
      compares_(compares),
      engine_(api) {
  if (comm != nullptr) engine_.Adopt(comm);
  static_cast<void>(FindDevice());  // asked again in first contact
}

HcclCommunicator::~HcclCommunicator() {
  Close("it closed its communicator");
}

bool HcclCommunicator::failed() const {
  return failed_.load(std::memory_order_acquire) || (host_ != nullptr && host_->failed());
}

Status HcclCommunicator::CheckUsable() const {
  CHECK_ARG(!Inherited(), ERROR_INVALID_PARAM, "comm_domain \"", spec().comm_domain,
            "\": this communicator belongs to the parent process; make a new one after fork()");
  if (!failed_.load()) return Ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  return Error(failure_.code(), "comm_domain \"", spec().comm_domain,
               "\": the communicator has ended, make a new one: ", failure_.message());
}

Status HcclCommunicator::Supports(CallKind kind, DType dtype, ReduceOp op) const {
  CHECK_ARG(IsCarried(kind) || IsOfHost(kind), ERROR_UNSUPPORTED,
            "backend hccl: ", collops::Name(kind), " does not run on it yet");
  if (!Reduces(kind)) return Ok();
  DataType type = DataType::kInt8;
  Reduction reduction = Reduction::kSum;
  return FindReduction(dtype, op, &type, &reduction);
}

Status HcclCommunicator::AllocateWindow(int64_t /*bytes*/, std::shared_ptr<Window>* /*window*/) {
  return Error(ERROR_UNSUPPORTED, "backend hccl has no windows: HCCL reads any NPU memory");
}

template <typename Step>
Status HcclCommunicator::RunAlone(const char* name, Step&& step) {
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
  return step();
}

template <typename Step>
Status HcclCommunicator::RunOnDevice(const char* name, CallKind kind, Step&& step) {
  Status found = device_index_ < 0 ? FindDevice() : Ok();
  if (found.ok()) {
    const DeviceScope scope(engine_.api(), device_index_);
    if (scope.status().ok()) return step();
    found = scope.status();
  }
  const Status reason = Named(name, found);
  static_cast<void>(Announce(kind, reason));
  return reason;
}

Status HcclCommunicator::Connect() {
  constexpr const char* kName = "first contact";
  return RunAlone(
      kName, [&] { return RunOnDevice(kName, CallKind::kRootInfo, [&] { return Meet(kName); }); });
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

// What a host call says; it ends this communicator only with the host connection itself.
Status HcclCommunicator::OfHost(const Status& status) {
  return status.ok() || !host_->failed() ? status : Fail(status);
}

Status HcclCommunicator::Meet(const char* name) {
  if (host_ != nullptr) {
    host_->set_timeout_s(timeout_s());
    RETURN_IF_ERROR(OfHost(host_->Connect()));
  }
  if (engine_.comm() != nullptr) return Ok();
  RootInfo root_info = {};
  RETURN_IF_ERROR(ExchangeRootInfo(name, &root_info));
  const Status made = engine_.Initialise(rank(), size(), root_info);
  return made.ok() ? Ok() : Fail(Named(name, made));
}

// Rank 0 asks HCCL where to meet and tells the others.
Status HcclCommunicator::ExchangeRootInfo(const char* name, RootInfo* root_info) {
  const std::string label = compares_ ? "COLLOPS_CHECK=1" : "COLLOPS_CHECK=0";
  AllGatherVCall call;
  call.kind = CallKind::kRootInfo;
  call.dtype = DType::kUInt8;
  std::vector<int64_t> counts(static_cast<size_t>(size()));
  const std::vector<int64_t> displs(counts.size());
  counts[0] = kRootInfoBytes;
  call.x = call.output = root_info;
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  // Who compares calls and who does not would wait for each other.
  label.copy(call.label.type, sizeof(call.label.type) - 1);
  if (rank() == 0) {
    const Status found =
        ToStatus(engine_.api(), engine_.api().get_root_info(root_info), "HcclGetRootInfo");
    if (!found.ok()) {
      static_cast<void>(Announce(call.kind, found));
      return Named(name, found);
    }
  }
  return OfHost(host_->AllGatherV(call));
}

// Tells the others why this rank does not come to what they wait for: the root info at first, and
// then the comparison, if there is one. Without comparisons they find out from HCCL.
Status HcclCommunicator::Announce(CallKind kind, const Status& reason) {
  const bool meets = host_ != nullptr && engine_.comm() == nullptr;
  if (!meets && !compares_) return Ok();
  host_->set_timeout_s(timeout_s());
  return OfHost(host_->Refuse(meets ? CallKind::kRootInfo : kind, reason));
}

// Looks without waiting whether all ranks are still there and all earlier calls went well.
Status HcclCommunicator::CheckPeers(const char* name) {
  const Status found = host_ == nullptr ? Ok() : host_->FindLoss();
  const Status status = found.ok() ? engine_.CheckHealth() : found;
  return status.ok() ? Ok() : Fail(Named(name, status));
}

template <typename Call, typename Step>
Status HcclCommunicator::Enqueue(const Call& call, Step&& step) {
  const char* const name = collops::Name(call.kind);
  return RunAlone(name, [&]() -> Status {
    if (call.stream == nullptr) {
      const Status reason = Error(ERROR_INVALID_STREAM, name,
                                  ": there is no stream: pass NPU tensors and stream= to ",
                                  "collops.Operation; the plain level does not run on hccl yet");
      static_cast<void>(Announce(call.kind, reason));
      return reason;
    }
    return RunOnDevice(name, call.kind, [&]() -> Status {
      RETURN_IF_ERROR(Meet(name));
      RETURN_IF_ERROR(CheckPeers(name));
      if (compares_) {
        RETURN_IF_ERROR(OfHost(host_->Compare(call)));
        // Another rank that compared well may have failed since.
        RETURN_IF_ERROR(CheckPeers(name));
      }
      Status status = step();
      // Also of a step that failed: its first part may be on the stream.
      const Status marked = engine_.MarkEnd(call.stream);
      if (status.ok()) status = marked;
      return status.ok() ? Ok() : Fail(Named(name, status));
    });
  });
}

Status HcclCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  if (IsOfHost(call.kind)) {
    RETURN_IF_ERROR(CheckHost());
    return OfHost(host_->AllGatherV(call));
  }
  return Enqueue(call,
                 [&] { return hccl::AllGatherV(engine_, call, rank(), size(), &scaled_counts_); });
}

Status HcclCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Enqueue(call, [&] { return hccl::ReduceScatterV(engine_, call, rank(), size()); });
}

Status HcclCommunicator::CheckHost() const {
  RETURN_IF_ERROR(CheckUsable());
  CHECK_ARG(host_ != nullptr, ERROR_UNSUPPORTED, "backend hccl: a communicator that was handed in ",
            "has no host connection: set COLLOPS_CHECK=1, or leave hcclComm out");
  return Ok();
}

Status HcclCommunicator::DoBarrier() {
  RETURN_IF_ERROR(CheckHost());
  return OfHost(host_->Barrier());
}

Status HcclCommunicator::Refuse(CallKind kind, const Status& reason) {
  return RunAlone(collops::Name(kind), [&] { return Announce(kind, reason); });
}

Status HcclCommunicator::FindLossAmong(const std::vector<int>& ranks, bool also_left) {
  return host_ == nullptr ? Ok() : host_->FindLossAmong(ranks, also_left);
}

Status HcclCommunicator::Fail(const Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failed_.exchange(true)) failure_ = status;
  }
  // Also of a rank that is lost: HCCL may say so of one whose process lives.
  if (host_ != nullptr) host_->EndGroup(status);
  return status;
}

void HcclCommunicator::Abort(const std::string& reason) {
  End(Error(ERROR_ABORTED, "rank ", rank(), " aborted: ", reason));
  if (host_ != nullptr && !Inherited()) host_->Abort(reason);
}

void HcclCommunicator::Close(const std::string& reason) {
  End(Error(ERROR_ABORTED, "rank ", rank(), " closed it: ", reason));
  if (Inherited()) return;
  if (host_ != nullptr) host_->Close(reason);
  // A call that runs in another thread still needs the engine; the destructor comes here again.
  if (!busy_.load()) engine_.Release(device_index_);
}

void HcclCommunicator::End(const Status& status) {
  if (Inherited()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.exchange(true)) failure_ = status;
}

}  // namespace collops::hccl

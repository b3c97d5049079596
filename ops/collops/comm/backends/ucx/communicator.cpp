#include "collops/comm/backends/ucx/communicator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/ucx/backend.h"
#include "collops/comm/backends/ucx/engine/library.h"
#include "collops/comm/control/control.h"
#include "collops/comm/control/hosts/mesh.h"
#include "collops/comm/placement/job.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/comm/window.h"
#include "collops/core/status.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/thread_pool.h"

namespace collops::ucx {
namespace {

constexpr std::align_val_t kWindowAlignment{4096};

// Memory that only its own rank addresses.
class OwnWindow : public Window {
 public:
  OwnWindow(void* data, int64_t bytes, RankSet own)
      : data_(data), bytes_(bytes), own_(std::move(own)) {}
  ~OwnWindow() override { ::operator delete(data_, kWindowAlignment); }

  void* data() const override { return data_; }
  int64_t bytes() const override { return bytes_; }
  const RankSet& peers() const override { return own_; }

 private:
  void* data_;
  int64_t bytes_;
  RankSet own_;
};

// What was sent has usually left this host long before.
constexpr double kFlushS = 1.0;

}  // namespace

UcxCommunicator::~UcxCommunicator() {
  Close("it closed its communicator");
}

Status UcxCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  const bool reduces = primitive == Primitive::kReduce || primitive == Primitive::kEvenReduce;
  COLLOPS_CHECK_ARG(!reduces || kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED,
                    "backend ucx: there is no ", Name(op), " of ", Name(dtype));
  COLLOPS_CHECK_ARG(primitive != Primitive::kWindows, ERROR_UNSUPPORTED,
                    "backend ucx: ranks on several hosts cannot read each other's memory in place");
  return Ok();
}

Status UcxCommunicator::AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) {
  COLLOPS_CHECK_ARG(bytes >= 0, ERROR_INVALID_PARAM, "a window must have 0 bytes or more, got ",
                    bytes);
  COLLOPS_RETURN_IF_ERROR(control().CheckUsable("empty"));
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  void* const data = ::operator new(size, kWindowAlignment, std::nothrow);
  COLLOPS_CHECK_ARG(data != nullptr, ERROR_OUT_OF_HOST_MEMORY, "this process cannot allocate ",
                    bytes, " more bytes");
  *window = std::make_shared<OwnWindow>(data, bytes, WindowPeers());
  return Ok();
}

RankSet UcxCommunicator::WindowPeers() const {
  RankSet own = RankSet::None(size());
  own.Add(rank());
  return own;
}

Status UcxCommunicator::ConnectAll() {
  COLLOPS_RETURN_IF_ERROR(ConnectLink(shared_control(), &link_));
  pair_wires_ = std::make_unique<MessageWires>(link_.get());
  if (link_->host == nullptr) return Ok();
  // Messages of this host use the windows of its communicator.
  control().set_drain([host = std::weak_ptr<BackendCommunicator>(link_->host)] {
    const std::shared_ptr<BackendCommunicator> living = host.lock();
    if (living != nullptr) living->control().Drain();
  });
  // A wait for ranks of this host has the duties of a wait of the group. Messages ring the group's
  // doorbell, which it does not hear.
  const control::WaitDuties* const duties = &control().duties();
  link_->host->control().set_progress_messages(
      [duties] {
        const control::MessageProgress progress = duties->ProgressMessages();
        return progress == control::MessageProgress::kUnderWay
                   ? control::MessageProgress::kNoDoorbell
                   : progress;
      },
      [duties] { return duties->wake_condition(); });
  link_->host->control().set_overdue([duties] { return duties->Overdue(); });
  return Ok();
}

Status UcxCommunicator::CheckShrinks() const {
  const bool met = link_ != nullptr;
  COLLOPS_CHECK_ARG(!met || control().endpoint().group().introduction != nullptr, ERROR_UNSUPPORTED,
                    "shrink: this is a subgroup on several hosts: shrink the communicator that was "
                    "split, and split that anew");
  return Ok();
}

Status UcxCommunicator::CheckGrows() const {
  COLLOPS_CHECK_ARG(control().endpoint().group().introduction != nullptr, ERROR_UNSUPPORTED,
                    "grow: this is a subgroup on several hosts: grow the communicator that was "
                    "split, and split that anew");
  return Ok();
}

Status UcxCommunicator::RunStep(const Agreement& agreement, std::unique_ptr<CrossHostCall> call) {
  const Status ready = call->Prepare();
  if (!ready.ok()) {
    // Only this rank has failed: no data has moved, and the next call may find memory.
    const char* const name = agreement.called();
    const Status reason = Error(ready.code(), name, ": ", ready.message());
    COLLOPS_RETURN_IF_ERROR(control().Refuse(name, reason));
    return reason;
  }
  control::Step& step = control().step();
  if (link_->host != nullptr) link_->host->set_timeout_s(timeout_s());
  COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, timeout_s()));
  call->Attach();
  const Status agreed = step.Agree();
  link_->heads->Clear();
  COLLOPS_RETURN_IF_ERROR(agreed);
  COLLOPS_RETURN_IF_ERROR(call->Run());
  return step.End();
}

Status UcxCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return RunStep(*call.agreement, MakeAllGatherV(link_.get(), call));
}

Status UcxCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const Status status =
      RunStep(*call.agreement, MakeReduceScatterV(link_.get(), call, &plans_, &scratch_));
  scratch_.Trim();  // UCX has nothing of it any more
  return status;
}

Status UcxCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return RunStep(*call.agreement, MakeExchangeV(link_.get(), call));
}

// A peer gets what was sent to it, although this rank closes its connections at once.
void UcxCommunicator::OnLeave() {
  if (control().Inherited() || control().failed()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  static_cast<void>(control().Alone("Close", [&] {
    return link_ == nullptr ? Ok() : link_->worker->Flush(Deadline::After(kFlushS));
  }));
}

void UcxCommunicator::OnClose() {
  if (control().Inherited()) return;
  const std::lock_guard<std::recursive_mutex> lock(closing_);
  if (link_ == nullptr || control().in_call()) return;  // the destructor releases it
  if (link_->host != nullptr) link_->host->Close("it closed its communicator");
  control().step().set_carrier(nullptr);
  link_.reset();
  scratch_.Free();
}

namespace {

// Ranks on this rank's host, as its parent, the table or the launcher says; 1 while nothing says
// it.
int RanksHere(const control::GroupSpec& spec) {
  const auto count = [rank = static_cast<size_t>(spec.rank)](const auto& all, auto host_of) {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const auto& other) {
      return host_of(other) == host_of(all[rank]);
    }));
  };
  if (spec.introduction != nullptr) {
    return count(spec.introduction->rows, [](const auto& row) { return row.host; });
  }
  if (spec.table == nullptr) return std::max(DetectLauncher().local_size, 1);
  if (!spec.table->completed) return 1;
  return count(spec.table->ranks, [](const auto& rank) { return rank.server; });
}

// A table that somebody still writes may place the ranks on several hosts.
Status IsOnOneHost(const control::GroupSpec& spec, bool* one_host) {
  const bool agreed = !spec.job_id.empty() && spec.introduction == nullptr;
  *one_host =
      spec.one_host || spec.comm_mode == COMM_MULTI_THREAD || (agreed && spec.meet_at.empty());
  const bool open = spec.table != nullptr && !spec.table->completed;
  if (*one_host || open || agreed || spec.introduction != nullptr) return Ok();
  JobPlace place;
  COLLOPS_RETURN_IF_ERROR(FindJobPlace(spec.table, spec.rank, &place));
  *one_host = place.address.empty();
  return Ok();
}

}  // namespace

Status Available() {
  const Library* library = nullptr;
  return Load(&library);
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  bool one_host = false;
  COLLOPS_RETURN_IF_ERROR(IsOnOneHost(spec, &one_host));
  if (one_host) return shm::Create(spec, communicator);
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(control::Control::Create(spec, 0, &control, control::Reach::kHosts));
  COLLOPS_RETURN_IF_ERROR(kernels::SetDefaultShare(RanksHere(spec)));
  *communicator = std::make_shared<UcxCommunicator>(std::move(control));
  return Ok();
}

void Decline(const control::GroupSpec& spec, const Status& reason) {
  bool one_host = true;
  // A subgroup's ranks have UCX, or had no group to split.
  if (!IsOnOneHost(spec, &one_host).ok() || one_host || spec.introduction != nullptr) return;
  control::Control::Decline(spec, reason);
}

int64_t SharedBytes(int rank_size) {
  return shm::SegmentBytes(rank_size);
}

std::vector<std::pair<std::string, std::string>> ShownFacts() {
  Report report;
  const Status described = Describe(&report);
  if (!described.ok()) return {{"no", described.message()}};
  std::string transports;
  for (const std::string& transport : report.transports) {
    transports += (transports.empty() ? "" : ", ") + transport;
  }
  return {{"library", Concat(report.path, " (", report.source, ")")},
          {"version", report.version},
          {"transports", transports},
          {"RDMA", ShowRdma(report)}};
}

}  // namespace collops::ucx

#include "collops/comm/backends/ucx/communicator.h"

#include "collops/comm/backends/ucx/collectives.h"
#include "collops/comm/backends/ucx/plain_window.h"
#include "collops/comm/control/control.h"
#include "collops/kernels/compute.h"
#include "collops/kernels/reduce/reduce.h"

namespace collops::ucx {
namespace {

// What was sent has usually left this host long before.
constexpr double kFlushS = 1.0;

}  // namespace

UcxCommunicator::~UcxCommunicator() {
  Close("it closed its communicator");
}

const kernels::Compute* UcxCommunicator::compute() const {
  return kernels::CpuCompute();
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
  return PlainWindow::Allocate(bytes, WindowPeers(), window);
}

RankSet UcxCommunicator::WindowPeers() const {
  RankSet own = RankSet::None(size());
  own.Add(rank());
  return own;
}

Status UcxCommunicator::ConnectAll() {
  COLLOPS_RETURN_IF_ERROR(ConnectLink(shared_control(), &link_));
  pair_wire_ = std::make_unique<UcxPairWire>(link_.get());
  if (link_->host == nullptr) return Ok();
  // Messages of this host use the windows of its communicator.
  control().set_drain([host = std::weak_ptr<Communicator>(link_->host)] {
    const std::shared_ptr<Communicator> living = host.lock();
    if (living != nullptr) living->control().Drain();
  });
  // A wait for ranks of this host has the duties of a wait of the group. Messages ring the group's
  // doorbell, which it does not hear.
  const control::WaitDuties* const duties = &control().duties();
  link_->host->control().set_pump(
      [duties] {
        const control::Pumped pumped = duties->Pump();
        return pumped == control::Pumped::kUnderWay ? control::Pumped::kUnrung : pumped;
      },
      [duties] { return duties->doze(); });
  link_->host->control().set_overdue([duties] { return duties->Overdue(); });
  return Ok();
}

template <typename Attach, typename Move>
Status UcxCommunicator::Step(const Agreement& agreement, Attach&& attach, Move&& move) {
  control::Step& step = control().step();
  if (link_->host != nullptr) link_->host->set_timeout_s(timeout_s());
  COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, timeout_s()));
  attach();
  const Status agreed = step.Agree();
  link_->heads->Clear();
  COLLOPS_RETURN_IF_ERROR(agreed);
  COLLOPS_RETURN_IF_ERROR(move());
  return step.End();
}

Status UcxCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Step(
      *call.agreement, [&] { AttachAllGatherV(link_.get(), call); },
      [&] { return ucx::AllGatherV(link_.get(), call); });
}

Status UcxCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const char* const name = call.agreement->called();
  std::unique_ptr<SliceReduction> reduction = MakeReduction(link_.get(), call, &scratch_);
  const Status ready = reduction->Prepare();
  if (!ready.ok()) {
    // Only this rank has failed: no data has moved, and the next call may find memory.
    const Status reason = Error(ready.code(), name, ": ", ready.message());
    COLLOPS_RETURN_IF_ERROR(control().Refuse(name, reason));
    return reason;
  }
  const Status status =
      Step(*call.agreement, [&] { reduction->Attach(); }, [&] { return reduction->Run(); });
  reduction.reset();  // takes back what UCX still has of the scratch memory
  scratch_.Trim();
  return status;
}

Status UcxCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Step(*call.agreement, [] {}, [&] { return ucx::ExchangeV(link_.get(), call); });
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

}  // namespace collops::ucx

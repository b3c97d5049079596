#include "comm/backends/ucx/communicator.h"

#include "comm/backends/ucx/collectives.h"
#include "comm/control/control.h"
#include "kernels/compute.h"
#include "kernels/reduce/reduce.h"

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
  CHECK_ARG(primitive != Primitive::kReduce || kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED,
            "backend ucx: there is no ", Name(op), " of ", Name(dtype));
  CHECK_ARG(primitive != Primitive::kWindows && primitive != Primitive::kMessages,
            ERROR_UNSUPPORTED, "backend ucx: it has neither windows nor messages");
  return Ok();
}

Status UcxCommunicator::AllocateWindow(int64_t, std::shared_ptr<Window>*) {
  return Error(ERROR_UNSUPPORTED, "backend ucx: it has no windows");
}

Status UcxCommunicator::ConnectAll() {
  return ConnectLink(shared_control(), &link_);
}

template <typename Move>
Status UcxCommunicator::Step(const Agreement& agreement, Move&& move) {
  control::Step& step = control().step();
  RETURN_IF_ERROR(step.Begin(agreement, timeout_s()));
  RETURN_IF_ERROR(step.Agree());
  RETURN_IF_ERROR(move());
  return step.End();
}

Status UcxCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  return Step(*call.agreement, [&] { return ucx::AllGatherV(link_.get(), call); });
}

Status UcxCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  return Step(*call.agreement, [&] { return ucx::ReduceScatterV(link_.get(), call, &scratch_); });
}

Status UcxCommunicator::DoExchangeV(const ExchangeVCall& call) {
  return Step(*call.agreement, [&] { return ucx::ExchangeV(link_.get(), call); });
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
}

}  // namespace collops::ucx

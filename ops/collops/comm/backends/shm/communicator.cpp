#include "collops/comm/backends/shm/communicator.h"

#include "collops/comm/backends/shm/backend.h"
#include "collops/comm/backends/shm/pair_wire.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/kernels/thread_pool.h"

namespace collops::shm {
namespace {

void RingPairLane(void* endpoint, int peer) {
  static_cast<control::Endpoint*>(endpoint)->Ring(peer, control::kPairLane);
}

}  // namespace

ShmCommunicator::~ShmCommunicator() {
  Close("it closed its communicator");
}

Status ShmCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  const bool reduces = primitive == Primitive::kReduce || primitive == Primitive::kEvenReduce;
  COLLOPS_CHECK_ARG(!reduces || kernels::CanReduce(dtype, op), ERROR_UNSUPPORTED,
                    "backend shm: there is no ", Name(op), " of ", Name(dtype));
  return Ok();
}

Status ShmCommunicator::AllocateWindow(int64_t bytes, std::shared_ptr<Window>* window) {
  COLLOPS_CHECK_ARG(bytes >= 0, ERROR_INVALID_PARAM, "a window must have 0 bytes or more, got ",
                    bytes);
  COLLOPS_RETURN_IF_ERROR(control().CheckUsable("empty"));
  return windows_->Allocate(bytes, window, WindowTable::User::kCaller);
}

void ShmCommunicator::Connected() {
  exchange_ = std::make_unique<Exchange>(&control(), windows_.get());
  fused_ = std::make_unique<ShmFusedCall>(exchange_.get(), windows_.get());
  wire_ = MakePairWire({&RingPairLane, &control().endpoint()});
}

std::unique_ptr<PairWire> ShmCommunicator::MakePairWire(const Doorbell& doorbell) {
  return std::make_unique<ShmPairWire>(exchange_->layout().pairs(), &control().endpoint(), doorbell,
                                       &exchange_->mailbox());
}

Status ShmCommunicator::DoRunFused(const FusedCallSpec& spec, const FusedBody& body) {
  const Status ready = fused_->Prepare(spec);
  if (!ready.ok()) {
    // Only this rank has failed: no data has moved, and the next call may find memory.
    COLLOPS_RETURN_IF_ERROR(control().Refuse(spec.agreement->called(), ready));
    return ready;
  }
  COLLOPS_RETURN_IF_ERROR(fused_->Begin());
  COLLOPS_RETURN_IF_ERROR(body(fused_.get()));
  return fused_->End();
}

int64_t SegmentBytes(int rank_size) {
  return control::Board::Bytes(rank_size) + SegmentLayout::Bytes(rank_size);
}

// Asked of the system once: a sandbox may deny shared memory. A lack of memory is told when a
// communicator is made.
Status Available() {
  static const Status* const made = [] {
    control::Segment segment;
    return new Status(control::Segment::Create(1, &segment));
  }();
  return made->code() == ERROR_UNSUPPORTED ? *made : Ok();
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(
      control::Control::Create(spec, SegmentLayout::Shape(spec.rank_size), &control));
  COLLOPS_RETURN_IF_ERROR(kernels::SetDefaultShare(spec.rank_size));
  *communicator = std::make_shared<ShmCommunicator>(std::move(control));
  return Ok();
}

}  // namespace collops::shm

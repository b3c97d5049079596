#include "collops/comm/backends/shm/windows/call_window.h"

#include <utility>

namespace collops::shm {
namespace {

// The low bits of a signal count; the others are the call's step, so no signal is reset.
constexpr int kCountBits = 24;

// The bits of a step's number that a signal holds.
uint64_t StepBits(uint64_t step) {
  return (step << kCountBits) >> kCountBits;
}

// Rounds up, so that calls whose size grows row by row do not each need new memory.
int64_t Roomy(int64_t bytes) {
  int64_t unit = 4096;
  while (unit * 16 <= bytes) unit *= 2;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Status ShmCallWindow::Reserve(int64_t bytes) {
  if (bytes == 0 || (memory_ != nullptr && memory_->bytes() >= bytes)) return Ok();
  std::shared_ptr<Window> larger;
  COLLOPS_RETURN_IF_ERROR(windows_->Allocate(Roomy(bytes), &larger));
  if (announced_) old_memory_ = std::move(memory_);
  announced_ = false;
  memory_ = std::move(larger);
  return Ok();
}

Status ShmCallWindow::Prepare(int64_t bytes) {
  bytes_ = bytes;
  id_ = 0;
  if (bytes == 0) return Ok();
  COLLOPS_RETURN_IF_ERROR(Reserve(bytes));
  announced_ = true;
  WindowSpot spot;
  if (windows_->Find(memory_->data(), bytes, &spot)) id_ = spot.id;
  return Ok();
}

std::byte* ShmCallWindow::data() const {
  return bytes_ == 0 ? nullptr : static_cast<std::byte*>(memory_->data());
}

Status ShmCallWindow::PeerData(int rank, const std::byte** data) const {
  *data = nullptr;
  if (bytes_ == 0) return Ok();
  return exchange_->PeerTiles(rank, bytes_, data);
}

void ShmCallWindow::Signal(int index, int64_t count) {
  FusedSignal& signal = exchange_->layout().fused_signal(exchange_->rank(), index);
  const uint64_t step = exchange_->step().number();
  signal.value.store((step << kCountBits) + static_cast<uint64_t>(count),
                     std::memory_order_release);
  exchange_->endpoint().RingAll();
}

int64_t ShmCallWindow::Signalled(int rank, int index) const {
  const FusedSignal& signal = exchange_->layout().fused_signal(rank, index);
  const uint64_t value = signal.value.load(std::memory_order_acquire);
  if (value >> kCountBits != StepBits(exchange_->step().number())) return 0;
  return static_cast<int64_t>(value & ((uint64_t{1} << kCountBits) - 1));
}

}  // namespace collops::shm

#include "toy/communicator.h"

#include <vector>

#include "collops/comm/control/control.h"
#include "collops/kernels/copy.h"
#include "collops/kernels/reduce/reduce.h"

namespace toy {
namespace {

using namespace collops;

// This rank's offer in one step; withdrawn by the destructor.
class OpenOffer {
 public:
  OpenOffer(Carrier* carrier, int rank, uint64_t step, const Offer& offer)
      : carrier_(carrier), rank_(rank) {
    carrier->Open(rank, step, offer);
  }
  ~OpenOffer() { carrier_->Withdraw(rank_); }
  OpenOffer(const OpenOffer&) = delete;
  OpenOffer& operator=(const OpenOffer&) = delete;

 private:
  Carrier* carrier_;
  int rank_;
};

// The offers of all ranks, while this rank reads them.
class Loans {
 public:
  explicit Loans(Carrier* carrier) : carrier_(carrier) {}
  ~Loans() {
    for (size_t r = 0; r < offers_.size(); ++r) carrier_->GiveBack(static_cast<int>(r));
  }
  Loans(const Loans&) = delete;
  Loans& operator=(const Loans&) = delete;

  // If an owner has withdrawn its offer, it has failed, which ends the wait.
  Status BorrowAll(control::Step* step, int rank_size) {
    Offer offer;
    for (int r = 0; r < rank_size; ++r) {
      const auto lent = [&] { return carrier_->Borrow(r, step->number(), &offer); };
      COLLOPS_RETURN_IF_ERROR(step->Until(lent));
      offers_.push_back(offer);
    }
    return Ok();
  }
  const std::vector<Offer>& offers() const { return offers_; }

 private:
  Carrier* carrier_;
  std::vector<Offer> offers_;
};

const std::byte* Bytes(const void* data) {
  return static_cast<const std::byte*>(data);
}

void ZeroGaps(const Range* gaps, int64_t num_gaps, std::byte* output, int64_t element_bytes) {
  for (int64_t i = 0; i < num_gaps; ++i) {
    kernels::Zero(output + gaps[i].begin * element_bytes,
                  (gaps[i].end - gaps[i].begin) * element_bytes);
  }
}

}  // namespace

Status ToyCommunicator::Supports(Primitive primitive, DType dtype, ReduceOp op) const {
  COLLOPS_CHECK_ARG(primitive != Primitive::kReduce || kernels::CanReduce(dtype, op),
                    ERROR_UNSUPPORTED, "backend toy: there is no ", Name(op), " of ", Name(dtype));
  COLLOPS_CHECK_ARG(primitive != Primitive::kWindows && primitive != Primitive::kMessages,
                    ERROR_UNSUPPORTED, "backend toy: neither windows nor messages");
  return Ok();
}

Status ToyCommunicator::AllocateWindow(int64_t, std::shared_ptr<Window>*) {
  return Error(ERROR_UNSUPPORTED, "backend toy: no windows");
}

void ToyCommunicator::Connected() {
  carrier_ = Carrier::Of(&control().endpoint().board().group(), size());
}

template <typename Move>
Status ToyCommunicator::Run(const Agreement& agreement, const Offer& offer, Move&& move) {
  control::Step& step = control().step();
  COLLOPS_RETURN_IF_ERROR(step.Begin(agreement, timeout_s()));
  const OpenOffer open(carrier_.get(), rank(), step.number(), offer);
  step.Publish();
  COLLOPS_RETURN_IF_ERROR(step.AwaitAll());
  {
    Loans loans(carrier_.get());
    COLLOPS_RETURN_IF_ERROR(loans.BorrowAll(&step, size()));
    move(loans.offers());
  }
  step.endpoint().RingAll();
  COLLOPS_RETURN_IF_ERROR(step.Until([&] { return carrier_->ReadByAll(rank()); }));
  return step.End();
}

Status ToyCommunicator::DoAllGatherV(const AllGatherVCall& call) {
  const int64_t item = SizeOf(call.dtype);
  auto* const output = static_cast<std::byte*>(call.output);
  return Run(*call.agreement, {Bytes(call.x), nullptr}, [&](const std::vector<Offer>& offers) {
    ZeroGaps(call.gaps, call.num_gaps, output, item);
    for (size_t r = 0; r < offers.size(); ++r) {
      std::byte* const block = output + call.rdispls[r] * item;
      if (offers[r].x != block) kernels::Copy(block, offers[r].x, call.recv_counts[r] * item);
    }
  });
}

Status ToyCommunicator::DoReduceScatterV(const ReduceScatterVCall& call) {
  const int64_t item = SizeOf(call.dtype);
  const int64_t begin = call.sdispls[rank()] * item;
  const int64_t count = call.send_counts[rank()];
  auto* const output = static_cast<std::byte*>(call.output);
  return Run(*call.agreement, {Bytes(call.x), nullptr}, [&](const std::vector<Offer>& offers) {
    std::vector<const void*> sources;
    for (const Offer& offer : offers) sources.push_back(offer.x + begin);
    if (count > 0) kernels::Reduce(output, sources.data(), size(), count, call.dtype, call.op);
    kernels::Zero(output + count * item, (call.output_count - count) * item);
  });
}

Status ToyCommunicator::DoExchangeV(const ExchangeVCall& call) {
  const int64_t item = SizeOf(call.dtype);
  auto* const output = static_cast<std::byte*>(call.output);
  return Run(*call.agreement, {Bytes(call.x), call.sdispls}, [&](const std::vector<Offer>& offers) {
    ZeroGaps(call.gaps, call.num_gaps, output, item);
    for (size_t r = 0; r < offers.size(); ++r) {
      if (call.recv_counts[r] == 0) continue;
      kernels::Copy(output + call.rdispls[r] * item, offers[r].x + offers[r].displs[rank()] * item,
                    call.recv_counts[r] * item);
    }
  });
}

Status Available() {
  return Ok();
}

Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator) {
  COLLOPS_CHECK_ARG(spec.comm_mode == COMM_MULTI_THREAD, ERROR_UNSUPPORTED,
                    "backend toy: its ranks are threads of one process (commMode 1)");
  std::shared_ptr<control::Control> control;
  COLLOPS_RETURN_IF_ERROR(control::Control::Create(spec, 0, &control));
  *communicator = std::make_shared<ToyCommunicator>(std::move(control));
  return Ok();
}

int64_t SharedBytes(int rank_size) {
  return control::Board::Bytes(rank_size);
}

}  // namespace toy

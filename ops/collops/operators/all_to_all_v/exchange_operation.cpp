#include "collops/operators/all_to_all_v/exchange_operation.h"

#include <utility>

namespace collops {
namespace {

constexpr size_t kX = 0;

}  // namespace

ExchangeOperation::ExchangeOperation(OpSignature signature, int root)
    : CollectiveOperation(std::move(signature)), root_(root) {}

Status ExchangeOperation::CheckSupport(DType dtype) const {
  return communicator().Supports(Primitive::kExchange, dtype, ReduceOp::kSum);
}

void ExchangeOperation::AgreeOn(const Plan& plan, Agreement* agreement) const {
  const ExchangeLists lists = ListsOf(plan);
  AddTerms(TermsOf(plan, root_), agreement);
  agreement->Pairwise("sendCounts", lists.send_counts.data(), "recvCounts",
                      lists.recv_counts.data(), communicator().rank(), communicator().size());
}

Status ExchangeOperation::Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
                              void* stream) {
  const ExchangeLists lists = ListsOf(plan);
  auto call = CallOf<ExchangeVCall>(plan, stream);
  call.x = pack.inputs[kX].data;
  call.send_counts = lists.send_counts.data();
  call.sdispls = lists.sdispls.data();
  call.output = pack.outputs[0].data;
  call.recv_counts = lists.recv_counts.data();
  call.rdispls = lists.rdispls.data();
  return communicator().ExchangeV(call);
}

TensorDesc OneRow(const TensorDesc& x, int64_t count) {
  TensorDesc output = x;
  output.shape = {1, count};
  return output;
}

}  // namespace collops

#include "collops/operators/framework/make_operator.h"
#include "collops/operators/recv/param.h"
#include "collops/operators/send/message_operation.h"

namespace collops {

// output = what rank srcRank sends with Send. Input: x, of which only shape and dtype are used.
template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const RecvParam& param) {
  OpSignature signature = {"Recv", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return std::make_unique<MessageOperation>(signature, Transfer::kRecv, param.srcRank);
}
template Status CreateOperation(const RecvParam& param, std::unique_ptr<Operation>* operation);
template Status InferShape(const RecvParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

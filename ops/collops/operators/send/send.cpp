#include "collops/operators/framework/make_operator.h"
#include "collops/operators/send/message_operation.h"
#include "collops/operators/send/param.h"

namespace collops {

// Sends x to rank destRank, which takes it with Recv. Input: x; there is no output.
template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const SendParam& param) {
  const OpSignature signature = {
      "Send", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}, {}};
  return std::make_unique<MessageOperation>(signature, Transfer::kSend, param.destRank);
}
template Status CreateOperation(const SendParam& param, std::unique_ptr<Operation>* operation);
template Status InferShape(const SendParam& param, int rank_size,
                           const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs);

}  // namespace collops

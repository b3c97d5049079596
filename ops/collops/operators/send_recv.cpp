#include <utility>

#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"

namespace collops {
namespace {

// One message between this rank and a peer, in the two phases of collectives. Send gives x away and
// has no output; Recv reads only x's shape and dtype, and has one output like it. Only the peer
// takes part, and gets a refusal.
class MessageOperation : public CollectiveOperation {
 public:
  MessageOperation(OpSignature signature, Transfer::Way way, uint32_t peer)
      : CollectiveOperation(std::move(signature)), way_(way), peer_(static_cast<int>(peer)) {}

  Status Refuse(const Status& reason) override {
    const Transfer refused = NewTransfer();
    return communicator().RefuseMessages(Name(), &refused, 1, reason);
  }

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    outputs->assign(way_ == Transfer::kRecv ? 1 : 0, inputs[0]);
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kMessages, dtype, ReduceOp::kSum);
  }

  // The two ranks are compared when the message is matched, not by an agreement of all ranks.
  void AgreeOn(const Plan& /*plan*/, Agreement* /*agreement*/) const override {}

  Status Run(const Plan& plan, const VariantPack& pack, void* /*workspace*/,
             void* stream) override {
    Transfer transfer = NewTransfer();
    transfer.dtype = plan.inputs[0].dtype;
    transfer.elements = Numel(plan.inputs[0].shape);
    transfer.bytes = plan.bytes.inputs[0];
    transfer.data = (way_ == Transfer::kRecv ? pack.outputs : pack.inputs)[0].data;
    return communicator().Messages(Name(), &transfer, 1, stream);
  }

 private:
  Transfer NewTransfer() const {
    Transfer transfer;
    transfer.way = way_;
    transfer.peer = peer_;
    return transfer;
  }

  const Transfer::Way way_;
  const int peer_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<SendParam>() {
  using P = SendParam;
  static const auto fields = StructFields<P>("SendParam")
                                 .AddRank()
                                 .Add<&P::destRank>("destRank")
                                 .AddCommunicator()
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const SendParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Send", param, kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("Send", param));
  return param.rankSize == 0 ? Ok() : CheckRanks(param, param.rank, param.rankSize);
}

Status CheckRanks(const SendParam& param, int rank, int rank_size) {
  return CheckPeer("Send", "destRank", param.destRank, rank, rank_size);
}

// Sends x to rank destRank, which takes it with Recv. Input: x; there is no output.
template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const SendParam& param) {
  const OpSignature signature = {
      "Send", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}, {}};
  return std::make_unique<MessageOperation>(signature, Transfer::kSend, param.destRank);
}
template struct ParamFunctions<SendParam>;

template <>
const FieldTable& FieldsOf<RecvParam>() {
  using P = RecvParam;
  static const auto fields = StructFields<P>("RecvParam")
                                 .AddRank()
                                 .Add<&P::srcRank>("srcRank")
                                 .AddCommunicator()
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const RecvParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("Recv", param, kEngineNames));
  COLLOPS_RETURN_IF_ERROR(CheckDistributed("Recv", param));
  return param.rankSize == 0 ? Ok() : CheckRanks(param, param.rank, param.rankSize);
}

Status CheckRanks(const RecvParam& param, int rank, int rank_size) {
  return CheckPeer("Recv", "srcRank", param.srcRank, rank, rank_size);
}

// output = what rank srcRank sends with Send. Input: x, of which only shape and dtype are used.
template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const RecvParam& param) {
  OpSignature signature = {"Recv", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}};
  signature.may_be_in_place = true;
  return std::make_unique<MessageOperation>(signature, Transfer::kRecv, param.srcRank);
}
template struct ParamFunctions<RecvParam>;

}  // namespace collops

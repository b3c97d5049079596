#include <cstddef>
#include <cstring>

#include "collops/operators/framework/blocks.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"

namespace collops {
namespace {

// Copies x [rows, parts * width] as `parts` matrices [rows, width], one after the other.
void PackColumns(const void* x, int64_t rows, int parts, int64_t width_bytes, void* packed) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = static_cast<std::byte*>(packed);
  for (int part = 0; part < parts; ++part) {
    for (int64_t row = 0; row < rows; ++row) {
      std::memcpy(to, from + (row * parts + part) * width_bytes, static_cast<size_t>(width_bytes));
      to += width_bytes;
    }
  }
}

Status CheckShares(const char* what, int64_t count, int size) {
  // Unsigned, because the sum may exceed int64_t: a dim can have any size if another one is 0.
  const auto padded = static_cast<uint64_t>(count) + static_cast<uint64_t>(size - count % size);
  COLLOPS_CHECK_ARG(count % size == 0, ERROR_INVALID_TENSOR_DIM, "AllToAll: x has ", count, " ",
                    what, ", which do not divide evenly among ", size, " ranks: pad x to ", padded,
                    " ", what, ", or use AllToAllV");
  return Ok();
}

// Part q of the output = part `rank` of x of rank q. x has P equal parts: of its elements or, with
// `transpose`, of its columns; the output's parts [d0, d1 / P] are then stacked as rows. Input: x.
// Columns are first copied into the workspace, so that each part is contiguous.
class AllToAll : public CollectiveOperation {
 public:
  explicit AllToAll(const AllToAllParam& param)
      : CollectiveOperation(
            OpSignature{"AllToAll", {{"x", Role::kData, kMovable, kAnyNumDims, Extent::kAny}}}),
        root_(param.rankRoot),
        transpose_(param.transpose) {}

 protected:
  Status DescribeOutputs(const RankPlace& place, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const Shape& shape = inputs[0].shape;
    outputs->assign(1, inputs[0]);
    if (!transpose_) return CheckShares("elements", Numel(shape), place.rank_size);
    COLLOPS_CHECK_ARG(shape.num_dims == 2, ERROR_INVALID_TENSOR_DIM_NUM,
                      "AllToAll: x must have 2 dims with transpose, got ", shape.num_dims,
                      " in shape ", ToString(shape));
    COLLOPS_RETURN_IF_ERROR(CheckShares("columns", shape[1], place.rank_size));
    const int size = place.rank_size;
    outputs->front().shape = {shape[0] * size, shape[1] / size};
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    COLLOPS_RETURN_IF_ERROR(communicator().Supports(Primitive::kExchange, dtype, ReduceOp::kSum));
    const Device device = communicator().device();
    COLLOPS_CHECK_ARG(!transpose_ || device.kind == DeviceKind::kCpu, ERROR_UNSUPPORTED,
                      "AllToAll: transpose copies columns on the CPU; x is on ", ToString(device));
    return Ok();
  }

  Status Complete(Plan* plan) const override {
    const int size = communicator().size();
    plan->details = std::make_unique<EvenBlocks>(size, Numel(plan->inputs[0].shape) / size);
    if (transpose_) plan->workspace_bytes = static_cast<uint64_t>(plan->bytes.inputs[0]);
    return Ok();
  }

  // x's shape and `transpose` determine all counts, so the counts need no terms of their own.
  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
    agreement->Equal("transpose", transpose_ ? 1 : 0);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    const TensorDesc& x = plan.inputs[0];
    const EvenBlocks& blocks = BlocksOf(plan);
    auto call = CallOf<ExchangeVCall>(plan, stream);
    call.x = pack.inputs[0].data;
    // Without a workspace there are no rows, and then the width can have any size.
    if (plan.workspace_bytes > 0) {
      const int size = communicator().size();
      PackColumns(call.x, x.shape[0], size, x.shape[1] / size * SizeOf(x.dtype), workspace);
      call.x = workspace;
    }
    call.send_counts = call.recv_counts = blocks.counts.data();
    call.sdispls = call.rdispls = blocks.displs.data();
    call.output = pack.outputs[0].data;
    return communicator().ExchangeV(call);
  }

 private:
  const int root_;
  const bool transpose_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<AllToAllParam>() {
  using P = AllToAllParam;
  static const auto fields = StructFields<P>("AllToAllParam")
                                 .AddRank()
                                 .AddCommunicator()
                                 .Add<&P::transpose>("transpose")
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllToAllParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllToAll", param, kLcclToo));
  COLLOPS_CHECK_ARG(!param.transpose || param.backend != "hccl", ERROR_INVALID_PARAM,
                    "AllToAll: transpose does not exist on backend \"hccl\": use \"lccl\"");
  return CheckDistributed("AllToAll", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllToAllParam& param) {
  return std::make_unique<AllToAll>(param);
}
template struct ParamFunctions<AllToAllParam>;

}  // namespace collops

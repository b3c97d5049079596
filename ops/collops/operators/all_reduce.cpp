#include <cstddef>
#include <utility>

#include "collops/comm/even_split.h"
#include "collops/kernels/reduce/reduce.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

// output = x reduced over the ranks in rank order; it may be x itself. Input: x.
class AllReduce : public CollectiveOperation {
 public:
  explicit AllReduce(const AllReduceParam& param)
      : CollectiveOperation(MakeSignature()),
        root_(param.rankRoot),
        op_(ReduceOpOf(param.allReduceType)),
        backend_(param.backend) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    COLLOPS_RETURN_IF_ERROR(CheckAtbPair(Name(), backend_, op_, inputs[0].dtype));
    outputs->assign(1, inputs[0]);
    return Ok();
  }

  Status CheckSupport(DType dtype) const override {
    return communicator().Supports(Primitive::kEvenReduce, dtype, op_);
  }

  Status Complete(Plan* plan) const override {
    const TensorDesc& x = plan->inputs[0];
    plan->workspace_bytes = static_cast<uint64_t>(
        AllReduceScratch(communicator(), x.dtype, op_, Numel(x.shape), communicator().size()));
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.reduction = collops::Name(op_);
    terms.x_shape = plan.inputs[0].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    auto call = CallOf<AllReduceCall>(plan, stream);
    call.op = op_;
    call.x = pack.inputs[0].data;
    call.count = Numel(plan.inputs[0].shape);
    call.output = pack.outputs[0].data;
    call.scratch = workspace;
    return communicator().AllReduce(call);
  }

 private:
  static OpSignature MakeSignature() {
    OpSignature signature = {"AllReduce",
                             {{"x", Role::kData, kReducible, kAnyNumDims, Extent::kAny}}};
    signature.may_be_in_place = true;
    return signature;
  }

  const int root_;
  const ReduceOp op_;
  const std::string backend_;  // the struct's
};

// output = float16((the ranks' int8 x as int32 added up + rankSize * offset) * scale), each step
// behind the sum in float32. Inputs: x, scale, offset; scale and offset are this rank's own.
class QuantisedAllReduce : public CollectiveOperation {
 public:
  explicit QuantisedAllReduce(const AllReduceParam& param)
      : CollectiveOperation(MakeSignature()),
        root_(param.rankRoot),
        per_channel_(param.quantType == AllReduceParam::QUANT_TYPE_PER_CHANNEL) {}

 protected:
  Status DescribeOutputs(const RankPlace& /*place*/, const std::vector<TensorDesc>& inputs,
                         std::vector<TensorDesc>* outputs) const override {
    const Shape& x = inputs[kX].shape;
    const Shape& scale = inputs[kScale].shape;
    const int64_t n = x[x.num_dims - 1];
    COLLOPS_CHECK_ARG(n % kColumnUnit == 0, ERROR_INVALID_TENSOR_DIM, Name(),
                      ": with quantType the last dim of x must be a multiple of ", kColumnUnit,
                      ", got ", n, " in shape ", ToString(x));
    COLLOPS_CHECK_ARG(IsList(inputs[kOffset].shape, 1), ERROR_INVALID_TENSOR_DIM, Name(),
                      ": offset must be [1], got ", ToString(inputs[kOffset].shape));
    COLLOPS_CHECK_ARG(scale.num_dims <= 2, ERROR_INVALID_TENSOR_DIM_NUM, Name(),
                      ": scale must have 1 or 2 dims, got ", scale.num_dims, " in shape ",
                      ToString(scale));
    if (per_channel_) {
      COLLOPS_CHECK_ARG(n <= kMostChannels, ERROR_INVALID_TENSOR_DIM, Name(),
                        ": with quantType 2 (QUANT_TYPE_PER_CHANNEL) the last dim of x must be at "
                        "most ",
                        kMostChannels, ", got ", n);
      const bool is_row = scale.num_dims == 2 && scale[0] == 1 && scale[1] == n;
      COLLOPS_CHECK_ARG(is_row || IsList(scale, n), ERROR_INVALID_TENSOR_DIM, Name(),
                        ": scale must be [", n, "], a number for each column of x, or [1, ", n,
                        "], got ", ToString(scale));
    } else {
      COLLOPS_CHECK_ARG(IsList(scale, 1), ERROR_INVALID_TENSOR_DIM, Name(),
                        ": with quantType 1 (QUANT_TYPE_PER_TENSOR) scale must be [1], got ",
                        ToString(scale));
    }
    outputs->assign(1, inputs[kX]);
    outputs->front().dtype = DType::kFloat16;
    return Ok();
  }

  Status CheckSupport(DType /*dtype*/) const override {
    COLLOPS_CHECK_ARG(communicator().device().kind == DeviceKind::kCpu, ERROR_UNSUPPORTED,
                      "backend ", communicator().spec().backend,
                      ": AllReduce with a quantType runs on CPU tensors alone");
    return communicator().Supports(Primitive::kEvenReduce, DType::kInt32, ReduceOp::kSum);
  }

  // The sums, and the scratch memory of their AllReduce.
  Status Complete(Plan* plan) const override {
    const int64_t count = Numel(plan->inputs[kX].shape);
    const int64_t scratch = AllReduceScratch(communicator(), DType::kInt32, ReduceOp::kSum, count,
                                             communicator().size());
    plan->workspace_bytes = static_cast<uint64_t>(count * SizeOf(DType::kInt32) + scratch);
    return Ok();
  }

  void AgreeOn(const Plan& plan, Agreement* agreement) const override {
    CollectiveTerms terms = TermsOf(plan, root_);
    terms.dtype = per_channel_ ? "int8, quantType 2" : "int8, quantType 1";
    terms.x_shape = plan.inputs[kX].shape;
    AddTerms(terms, agreement);
  }

  Status Run(const Plan& plan, const VariantPack& pack, void* workspace, void* stream) override {
    const int64_t count = Numel(plan.inputs[kX].shape);
    auto call = CallOf<AllReduceCall>(plan, stream);
    call.dtype = DType::kInt32;
    call.x = workspace;
    call.count = count;
    call.output = workspace;
    call.scratch = static_cast<std::byte*>(workspace) + count * SizeOf(DType::kInt32);
    kernels::WidenInt8(pack.inputs[kX].data, count, workspace);
    COLLOPS_RETURN_IF_ERROR(communicator().AllReduce(call));
    float offset = 0;
    kernels::ToFloat32(DType::kFloat16, pack.inputs[kOffset].data, 1, &offset);
    const float shift = static_cast<float>(communicator().size()) * offset;
    kernels::ScaleSums(workspace, count, shift, pack.inputs[kScale].data,
                       Numel(plan.inputs[kScale].shape), pack.outputs[0].data);
    return Ok();
  }

 private:
  enum Input { kX, kScale, kOffset };
  // ATB's limits.
  static constexpr int64_t kColumnUnit = 16;
  static constexpr int64_t kMostChannels = 4194304;

  static bool IsList(const Shape& shape, int64_t length) {
    return shape.num_dims == 1 && shape[0] == length;
  }

  static OpSignature MakeSignature() {
    constexpr DTypeSet kHalf = SetOf(DType::kFloat16);
    OpSignature signature = {"AllReduce",
                             {{"x", Role::kData, SetOf(DType::kInt8), kAnyNumDims, Extent::kAny},
                              {"scale", Role::kData, kHalf, kAnyNumDims, Extent::kAny},
                              {"offset", Role::kData, kHalf, kAnyNumDims, Extent::kAny}}};
    signature.dtype_rows = {{DType::kInt8, DType::kFloat16, DType::kFloat16}};
    return signature;
  }

  const int root_;
  const bool per_channel_;
};

// Nothing but the struct decides, so all of it is refused at creation.
Status CheckQuant(const AllReduceParam& param) {
  const int type = param.quantType;
  COLLOPS_CHECK_ARG(
      type >= AllReduceParam::QUANT_TYPE_UNQUANT && type < AllReduceParam::QUANT_TYPE_MAX,
      ERROR_INVALID_PARAM, "AllReduce: quantType must be in [0, 2], got ", type);
  if (type == AllReduceParam::QUANT_TYPE_UNQUANT) return Ok();
  COLLOPS_CHECK_ARG(param.allReduceType == "sum", ERROR_INVALID_PARAM,
                    "AllReduce: with quantType allReduceType must be \"sum\", got \"",
                    param.allReduceType, "\"");
  COLLOPS_CHECK_ARG(param.backend != "hccl", ERROR_INVALID_PARAM,
                    "AllReduce: backend \"hccl\" does not support quantType (nor does it in ATB), "
                    "got ",
                    type, ": use \"lccl\"");
  COLLOPS_CHECK_ARG(param.outDataType == DType::kFloat16, ERROR_INVALID_PARAM,
                    "AllReduce: with quantType outDataType must be 1 (float16), got ",
                    static_cast<int>(param.outDataType));
  return Ok();
}

class AllReducePlan : public PlanOf<AllReduceCall> {
 public:
  explicit AllReducePlan(ReduceOp op)
      : PlanOf("all_reduce", "AllReduce", &Communicator::AllReduce), op_(op) {}

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    const DType dtype = tensors.x.view.desc.dtype;
    return static_cast<uint64_t>(AllReduceScratch(communicator, ReducedAs(dtype), op_,
                                                  tensors.x.numel * PartsOf(dtype),
                                                  communicator.size()));
  }

 protected:
  Status Prepare(const Communicator& communicator, const PlainTensors& tensors,
                 AllReduceCall* call) const override {
    const PlainTensor& x = tensors.x;
    COLLOPS_RETURN_IF_ERROR(CheckPair(tensors, method(), x.numel, x.numel, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckApart(tensors, method(), 0, ", or pass x itself as out"));
    const DType dtype = x.view.desc.dtype;
    COLLOPS_RETURN_IF_ERROR(CheckReducible(x.view.desc, op_, method()));
    call->dtype = ReducedAs(dtype);
    call->op = op_;
    call->x = x.view.data;
    call->count = x.numel * PartsOf(dtype);
    call->output = tensors.out.view.data;
    return communicator.Supports(Primitive::kEvenReduce, call->dtype, op_);
  }

  void AgreeOn(const Communicator& communicator, const PlainTensor& x,
               Agreement* agreement) const override {
    CollectiveTerms terms;
    terms.dtype = Name(x.view.desc.dtype);
    terms.reduction = Name(op_);
    AddSizeOf(communicator, x, &terms);
    AddTerms(terms, agreement);
    agreement->InPlainWords(method(), 1);
  }

 private:
  const ReduceOp op_;
};

}  // namespace

template <>
const FieldTable& FieldsOf<AllReduceParam>() {
  using P = AllReduceParam;
  static const auto fields = StructFields<P>("AllReduceParam")
                                 .AddRank()
                                 .Add<&P::allReduceType>("allReduceType")
                                 .AddCommunicator()
                                 .Add<&P::quantType>("quantType")
                                 .Add<&P::outDataType>("outDataType")
                                 .Add<&P::rsv>("rsv");
  return fields.table;
}

Status CheckParam(const AllReduceParam& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup("AllReduce", param, kLcclToo));
  COLLOPS_RETURN_IF_ERROR(
      CheckReduceType("AllReduce", "allReduceType", param.allReduceType, param.backend));
  COLLOPS_RETURN_IF_ERROR(CheckQuant(param));
  return CheckDistributed("AllReduce", param);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const AllReduceParam& param) {
  if (param.quantType == AllReduceParam::QUANT_TYPE_UNQUANT) {
    return std::make_unique<AllReduce>(param);
  }
  return std::make_unique<QuantisedAllReduce>(param);
}
template struct ParamFunctions<AllReduceParam>;

Status PlanAllReduce(const PlainCall& call, const Communicator& /*group*/, PlanPointer* plan) {
  *plan = std::make_shared<AllReducePlan>(call.op);
  return Ok();
}

}  // namespace collops

#include "collops/operators/linear_parallel/operator.h"

#include <utility>

#include "collops/core/trace/lines.h"
#include "collops/core/trace/log.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/param_check.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/framework/tensor_check.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/layout.h"
#include "collops/operators/params.h"

namespace collops {
namespace {

enum Input { kX, kWeight, kResidual };
enum Output { kY, kGathered };

constexpr DTypeSet kPayload = SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32);
constexpr InputRule kWeightRule = {"weight", Role::kData, kPayload, 2, Extent::kAny, 3};

// ATB's own tests expect 8 for a wrong number of dims, but 16 with mc2, which has no batches.
OpSignature SignatureOf(const LinearParallelParam& param) {
  OpSignature signature;
  signature.name = "LinearParallel";
  signature.inputs = {{"x", Role::kData, kPayload, 2, Extent::kAny, 3}, kWeightRule};
  if (param.hasResidual) {
    signature.inputs.push_back({"residual", Role::kData, kPayload, 1, Extent::kAny, 2});
  }
  if (param.keepIntermediate) signature.outputs.push_back("the gathered x");
  signature.one_dtype = true;
  signature.num_dims_code = ERROR_INVALID_TENSOR_DIM;
  if (param.backend == "mc2") {
    signature.num_dims_code = ERROR_INVALID_TENSOR_DIM_NUM;
    for (InputRule& input : signature.inputs) input.most_dims = 2;
  }
  return signature;
}

// What is packed is checked as the one input of a call, and as nothing else's output.
const OpSignature& PrepackSignature() {
  static const OpSignature signature = {
      "LinearParallel", {kWeightRule}, {}, false, ERROR_INVALID_TENSOR_DIM};
  return signature;
}

// What is kept of a call besides its tensors.
struct LinearDetails : PlanDetails {
  LinearPlan plan;
};

// One line: which engine was chosen, and why none before it.
void TraceChoice(const Communicator& communicator, const EnginePlace& place, const Engine& chosen,
                 bool named) {
  const CommunicatorSpec& spec = communicator.spec();
  std::string line = Concat("r", spec.rank, "/", spec.rank_size, " ",
                            spec.comm_domain.empty() ? "-" : spec.comm_domain, " ", spec.backend,
                            " LinearParallel plan engine=", chosen.name, named ? " as named" : "");
  for (const auto& [name, why] : AskEngines(place)) {
    if (std::string(name) == chosen.name) break;
    if (!why.ok()) line += Concat(", not ", name, ": ", why.message());
  }
  Log(LogLevel::kInfo, line);
}

}  // namespace

// A weight in the order in which the product reads it, and which tensor it was packed from.
struct LinearParallel::PackedWeight {
  TensorDesc desc;
  const void* source = nullptr;
  bool trans_weight = true;
  std::shared_ptr<const void> bytes;

  // The packed bytes if `weight` is the tensor that was packed, else null.
  const void* For(const TensorView& weight) const {
    return weight.data == source && weight.desc == desc ? bytes.get() : nullptr;
  }
};

LinearParallel::LinearParallel(const LinearParallelParam& param, const std::string& engine,
                               bool averages, bool splits_unevenly)
    : CollectiveOperation(SignatureOf(param)),
      param_(param),
      engine_(engine),
      averages_(averages),
      splits_unevenly_(splits_unevenly) {}

LinearParallel::~LinearParallel() = default;

Status LinearParallel::DescribeOutputs(const RankPlace& place,
                                       const std::vector<TensorDesc>& inputs,
                                       std::vector<TensorDesc>* outputs) const {
  COLLOPS_CHECK_ARG(
      param_.outDataType == DType::kUndefined || param_.outDataType == inputs[kX].dtype,
      ERROR_INVALID_TENSOR_INI_MATCH, "LinearParallel: outDataType is ",
      static_cast<int>(param_.outDataType), " (", collops::Name(param_.outDataType), ") but x is ",
      collops::Name(inputs[kX].dtype), ": leave it at -1 or pass x's");
  LinearLayout layout;
  COLLOPS_RETURN_IF_ERROR(
      MakeLinearLayout(param_, place.rank, place.rank_size, inputs, &layout, splits_unevenly_));
  TensorDesc output = inputs[kX];
  output.shape = layout.output;
  outputs->push_back(output);
  output.shape = layout.gathered;
  if (param_.keepIntermediate) outputs->push_back(output);
  return Ok();
}

Status LinearParallel::CheckSupport(DType dtype) const {
  COLLOPS_RETURN_IF_ERROR(communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum));
  COLLOPS_RETURN_IF_ERROR(
      communicator().Supports(Primitive::kReduce, DType::kFloat32, ReduceOp::kSum));
  if (communicator().compute() != nullptr) return Ok();
  COLLOPS_CHECK_ARG(communicator().stream_compute() != nullptr, ERROR_UNSUPPORTED, "backend ",
                    communicator().spec().backend,
                    ": LinearParallel does not run on it, it has no products");
  return communicator().stream_compute()->Available();
}

Status LinearParallel::Complete(Plan* plan) const {
  auto details = std::make_unique<LinearDetails>();
  LinearPlan& linear = details->plan;
  COLLOPS_RETURN_IF_ERROR(MakeLinearLayout(param_, communicator().rank(), communicator().size(),
                                           plan->inputs, &linear.layout, splits_unevenly_));
  const EnginePlace place = PlaceOf(linear.layout, communicator(), engine_.empty());
  COLLOPS_RETURN_IF_ERROR(ChooseEngine(engine_, place, &linear.engine));
  if (TraceEnabled()) TraceChoice(communicator(), place, *linear.engine, !engine_.empty());
  planned_engine_ = linear.engine->name;
  linear.rank_size = communicator().size();
  linear.dtype = plan->inputs[kX].dtype;
  linear.compute = communicator().compute();
  linear.stream_compute = communicator().stream_compute();
  linear.communicator = &communicator();
  linear.has_residual = param_.hasResidual;
  linear.returns_gathered = param_.keepIntermediate;
  if (averages_) linear.divisor = static_cast<float>(linear.layout.scatter.ranks.size());
  COLLOPS_RETURN_IF_ERROR(PlanLinear(&linear));
  plan->workspace_bytes = static_cast<uint64_t>(linear.memory.bytes);
  plan->details = std::move(details);
  return Ok();
}

void LinearParallel::AgreeOn(const Plan& plan, Agreement* agreement) const {
  AddLinearTerms(param_, static_cast<const LinearDetails&>(*plan.details).plan, agreement);
  if (method_ != nullptr) agreement->InPlainWords(method_, 1);
}

Status LinearParallel::Run(const Plan& plan, const VariantPack& pack, void* workspace,
                           void* stream) {
  LinearTensors tensors;
  tensors.x = pack.inputs[kX].data;
  tensors.weight.data = pack.inputs[kWeight].data;
  if (packed_ != nullptr) tensors.weight.packed = packed_->For(pack.inputs[kWeight]);
  if (param_.hasResidual) tensors.residual = pack.inputs[kResidual].data;
  tensors.output = pack.outputs[kY].data;
  if (param_.keepIntermediate) tensors.gathered = pack.outputs[kGathered].data;
  const auto& details = static_cast<const LinearDetails&>(*plan.details);
  return RunLinear(details.plan, tensors, *plan.agreement, workspace, &communicator(), stream,
                   plan.shared_from_this());
}

Status LinearParallel::Refuse(const Status& reason) {
  if (param_.type == LinearParallelParam::PURE_LINEAR) return Ok();
  return communicator().Refuse(method_ == nullptr ? Name() : method_, reason);
}

Status LinearParallel::Prepack(const TensorView& weight) {
  const OpSignature& signature = PrepackSignature();
  const VariantPack pack = {{weight}, {}};
  COLLOPS_RETURN_IF_ERROR(CheckInputs(signature, communicator().size(), {weight.desc}));
  const Shape& shape = weight.desc.shape;
  COLLOPS_CHECK_ARG(shape.num_dims == 2 || shape[0] == 1, ERROR_INVALID_TENSOR_DIM,
                    "LinearParallel: a weight of 3 dims must have 1 matrix in dim 0, got ",
                    shape[0]);
  const TensorBytes bytes = {{NumBytes(weight.desc)}, {}};
  COLLOPS_RETURN_IF_ERROR(CheckMemory(signature, pack, bytes, communicator().device()));
  COLLOPS_RETURN_IF_ERROR(CheckAddresses(signature, pack, bytes));
  COLLOPS_RETURN_IF_ERROR(CheckSupport(weight.desc.dtype));
  COLLOPS_CHECK_ARG(
      communicator().compute() != nullptr, ERROR_UNSUPPORTED,
      "LinearParallel: prepack() is for weights on the CPU; a device reads them as they are");
  const int64_t rows = shape[shape.num_dims - 2];
  const int64_t columns = shape[shape.num_dims - 1];
  const bool trans = param_.transWeight;
  const auto product = communicator().compute()->Plan(weight.desc.dtype, trans ? columns : rows,
                                                      trans ? rows : columns, trans);
  auto packed = std::make_shared<PackedWeight>();
  packed->bytes = product->PackWeight(weight.data);
  COLLOPS_CHECK_ARG(packed->bytes != nullptr, ERROR_OUT_OF_HOST_MEMORY,
                    "LinearParallel: no memory for a packed weight of ",
                    product->packed_weight_bytes(), " bytes");
  packed->desc = weight.desc;
  packed->source = weight.data;
  packed->trans_weight = trans;
  packed_ = std::move(packed);
  return Ok();
}

void LinearParallel::TakeWeight(const LinearParallel& from) {
  const bool fits = from.packed_ != nullptr && from.packed_->trans_weight == param_.transWeight;
  if (fits) packed_ = from.packed_;
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const LinearParallelParam& param) {
  return std::make_unique<LinearParallel>(param);
}
template struct ParamFunctions<LinearParallelParam>;

Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  if (!options.engine.empty()) COLLOPS_RETURN_IF_ERROR(CheckEngineName(options.engine));
  return Connect(param, std::make_unique<LinearParallel>(param, options.engine, options.averages),
                 operation);
}

Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation) {
  const auto* before = dynamic_cast<const LinearParallel*>(operation->get());
  COLLOPS_CHECK_ARG(before != nullptr, ERROR_INVALID_PARAM,
                    "LinearParallel: cannot update an operation named ", (*operation)->Name());
  std::unique_ptr<Operation> updated;
  COLLOPS_RETURN_IF_ERROR(
      CreateOperation(param, OperationOptions{before->engine(), before->averages()}, &updated));
  dynamic_cast<LinearParallel&>(*updated).TakeWeight(*before);
  *operation = std::move(updated);
  return Ok();
}

}  // namespace collops

#include "collops/operators/linear_parallel/operator.h"

#include <utility>

#include "collops/core/trace/log.h"
#include "collops/operators/framework/make_operator.h"
#include "collops/operators/framework/param_check.h"
#include "collops/operators/framework/struct_fields.h"
#include "collops/operators/framework/tensor_check.h"
#include "collops/operators/linear_parallel/engine.h"
#include "collops/operators/linear_parallel/experts.h"
#include "collops/operators/linear_parallel/layout.h"
#include "collops/operators/linear_parallel/product.h"
#include "collops/operators/params.h"

namespace collops {
namespace {

using P = LinearParallelParam;

constexpr const char* kOp = "LinearParallel";

Status CheckType(const P& param) {
  const int type = static_cast<int>(param.type);
  COLLOPS_CHECK_ARG(type >= P::LINEAR_ALL_REDUCE && type < P::MAX, ERROR_INVALID_PARAM, kOp,
                    ": type must be in [0, 6], got ", type);
  return Ok();
}

// What ATB's mc2 takes is less than what runs it here.
Status CheckMc2(const P& param) {
  if (param.backend != "mc2") return Ok();
  constexpr const char* kElse = "; use another backend, such as \"hccl\"";
  COLLOPS_CHECK_ARG(!param.hasResidual, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" does not support hasResidual", kElse);
  COLLOPS_CHECK_ARG(param.commMode == COMM_MULTI_THREAD, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" supports only commMode 1 (COMM_MULTI_THREAD), got ",
                    static_cast<int>(param.commMode), kElse);
  COLLOPS_CHECK_ARG(param.quantType == P::QUANT_TYPE_UNQUANT, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" does not support quantType, got ",
                    static_cast<int>(param.quantType));
  COLLOPS_CHECK_ARG(param.type == P::LINEAR_REDUCE_SCATTER, ERROR_INVALID_PARAM, kOp,
                    ": backend \"mc2\" supports only type 1 (LINEAR_REDUCE_SCATTER), got ",
                    static_cast<int>(param.type), kElse);
  return Ok();
}

Status CheckLeaves(const P& param) {
  COLLOPS_CHECK_ARG(param.sumLeaves >= 0 && param.sumLeaves <= kernels::kMostLeaves,
                    ERROR_INVALID_PARAM, kOp, ": sumLeaves must be in [0, ", kernels::kMostLeaves,
                    "], got ", param.sumLeaves);
  COLLOPS_CHECK_ARG(param.sumLeaves == 0 || !HasExperts(param.type), ERROR_INVALID_PARAM, kOp,
                    ": sumLeaves must be 0 for type ", static_cast<int>(param.type), " (",
                    Name(param.type), "), got ", param.sumLeaves);
  const bool adds = param.type != P::ALL_GATHER_LINEAR && param.type != P::PURE_LINEAR;
  COLLOPS_CHECK_ARG(param.sumColumns.empty() || (param.sumLeaves > 0 && adds), ERROR_INVALID_PARAM,
                    kOp, ": sumColumns must be empty ",
                    param.sumLeaves == 0 ? "without sumLeaves" : "where ranks do not add up",
                    ", got length ", param.sumColumns.size());
  return Ok();
}

enum Input { kX, kWeight };  // of the others see LinearInputs
enum Output { kY, kGathered };

constexpr DTypeSet kPayload = SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32);
constexpr InputRule kWeightRule = {"weight", Role::kData, kPayload, 2, Extent::kAny, 3};

// ATB's own tests expect 8 for a wrong number of dims, but 16 with mc2, which has no batches.
OpSignature SignatureOf(const LinearSettings& settings) {
  const P& param = settings.param;
  OpSignature signature;
  signature.name = kOp;
  signature.inputs = {{"x", Role::kData, kPayload, 2, Extent::kAny, 3}, kWeightRule};
  AddLinearInputs(settings, &signature);
  if (param.keepIntermediate) signature.outputs.push_back("the gathered x");
  signature.num_dims_code = ERROR_INVALID_TENSOR_DIM;
  if (param.backend == "mc2") {
    signature.num_dims_code = ERROR_INVALID_TENSOR_DIM_NUM;
    for (InputRule& input : signature.inputs) input.most_dims = 2;
  }
  signature.method = settings.voice.method;
  if (signature.method != nullptr) {
    signature.outputs[0] = "out";
    signature.inputs[1].if_strided =
        param.transWeight ? ", or for weight.t() pass weight itself with trans_weight=False"
                          : ", or for weight.t() pass weight itself with trans_weight=True";
  }
  return signature;
}

// What is packed is checked as the one input of a call, and as nothing else's output.
const OpSignature& PrepackSignature() {
  static const OpSignature signature = [] {
    OpSignature made;
    made.name = kOp;
    made.inputs = {kWeightRule};
    made.inputs[0].dtypes |= SetOf(DType::kInt8);
    made.outputs.clear();
    made.num_dims_code = ERROR_INVALID_TENSOR_DIM;
    return made;
  }();
  return signature;
}

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

Status CheckParam(const P& param) {
  COLLOPS_RETURN_IF_ERROR(CheckGroup(kOp, param, kAllNames));
  const uint8_t (&grid_rsv)[3] = param.twoDimTPInfo.rsv;
  COLLOPS_RETURN_IF_ERROR(CheckReserved(kOp, "twoDimTPInfo.rsv", grid_rsv, sizeof(grid_rsv)));
  COLLOPS_RETURN_IF_ERROR(CheckMc2(param));
  COLLOPS_RETURN_IF_ERROR(CheckType(param));
  COLLOPS_RETURN_IF_ERROR(CheckQuantType(param));
  COLLOPS_RETURN_IF_ERROR(CheckExperts(param));
  COLLOPS_CHECK_ARG(!param.keepIntermediate || param.type == P::ALL_GATHER_LINEAR,
                    ERROR_INVALID_PARAM, kOp,
                    ": keepIntermediate needs type 2 (ALL_GATHER_LINEAR), got type ",
                    static_cast<int>(param.type), " (", Name(param.type), ")");
  COLLOPS_RETURN_IF_ERROR(CheckLeaves(param));
  return CheckDistributed(kOp, param);
}

const char* Name(LinearParallelParam::ParallelType type) {
  switch (type) {
    case LinearParallelParam::UNDEFINED:
      return "UNDEFINED";
    case LinearParallelParam::LINEAR_ALL_REDUCE:
      return "LINEAR_ALL_REDUCE";
    case LinearParallelParam::LINEAR_REDUCE_SCATTER:
      return "LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALL_GATHER_LINEAR:
      return "ALL_GATHER_LINEAR";
    case LinearParallelParam::PURE_LINEAR:
      return "PURE_LINEAR";
    case LinearParallelParam::ALL_GATHER_LINEAR_REDUCE_SCATTER:
      return "ALL_GATHER_LINEAR_REDUCE_SCATTER";
    case LinearParallelParam::ALLTOALLVC_ALL_GATHER_GMM:
      return "ALLTOALLVC_ALL_GATHER_GMM";
    case LinearParallelParam::GMM_REDUCE_SCATTER_ALLTOALLVC:
      return "GMM_REDUCE_SCATTER_ALLTOALLVC";
    case LinearParallelParam::MAX:
      return "MAX";
  }
  return "MAX";
}

using TwoDimTPInfo = P::TwoDimTPInfo;
using MoeInfo = P::MoeInfo;

template <>
const FieldTable& FieldsOf<TwoDimTPInfo>() {
  using Info = TwoDimTPInfo;
  static const auto fields = StructFields<Info>("twoDimTPInfo")
                                 .Add<&Info::agDim>("agDim")
                                 .Add<&Info::rsDim>("rsDim")
                                 .Add<&Info::innerDimIsAg>("innerDimIsAg")
                                 .Add<&Info::rsv>("rsv");
  return fields.table;
}

template <>
const FieldTable& FieldsOf<MoeInfo>() {
  static const auto fields = StructFields<MoeInfo>("moeInfo")
                                 .Add<&MoeInfo::localExpertNums>("localExpertNums")
                                 .Add<&MoeInfo::epSize>("epSize")
                                 .Add<&MoeInfo::tpSize>("tpSize");
  return fields.table;
}

bool operator==(const TwoDimTPInfo& a, const TwoDimTPInfo& b) {
  return SameFields(a, b);
}

bool operator==(const MoeInfo& a, const MoeInfo& b) {
  return SameFields(a, b);
}

// Found by Field, like those of struct_fields.h, through the namespace of the struct.
static void WriteJson(const TwoDimTPInfo& info, Json* to) {
  WriteObject(info, to);
}

static void WriteJson(const MoeInfo& info, Json* to) {
  WriteObject(info, to);
}

static Status ReadJson(const Json& json, const std::string& where, TwoDimTPInfo* info) {
  return ReadObject(json, where.c_str(), info);
}

static Status ReadJson(const Json& json, const std::string& where, MoeInfo* info) {
  return ReadObject(json, where.c_str(), info);
}

template <>
const FieldTable& FieldsOf<P>() {
  static const auto fields = StructFields<P>("LinearParallelParam")
                                 .Add<&P::transWeight>("transWeight")
                                 .AddRank()
                                 .Add<&P::hasResidual>("hasResidual")
                                 .Add<&P::backend>("backend")
                                 .Add<&P::hcclComm>("hcclComm")
                                 .Add<&P::commMode>("commMode")
                                 .Add<&P::rankTableFile>("rankTableFile")
                                 .Add<&P::type>("type")
                                 .Add<&P::keepIntermediate>("keepIntermediate")
                                 .Add<&P::quantType>("quantType")
                                 .Add<&P::quantGroupSize>("quantGroupSize")
                                 .Add<&P::outDataType>("outDataType")
                                 .Add<&P::commDomain>("commDomain")
                                 .Add<&P::twoDimTPInfo>("twoDimTPInfo")
                                 .Add<&P::moeInfo>("moeInfo")
                                 .Add<&P::rsv>("rsv")
                                 .Add<&P::gatherRows>("gatherRows")
                                 .Add<&P::scatterRows>("scatterRows")
                                 .Add<&P::sumLeaves>("sumLeaves")
                                 .Add<&P::sumColumns>("sumColumns");
  return fields.table;
}

// A weight in the order in which the product reads it, and which tensor it was packed from.
struct LinearParallel::PackedWeight {
  TensorDesc desc;
  const void* source = nullptr;
  bool trans_weight = true;
  std::vector<int64_t> borders;  // of the leaves
  std::shared_ptr<const void> bytes;

  // The packed bytes if `weight` is the tensor that was packed, for such leaves; else null.
  const void* For(const TensorView& weight, const LinearLeaves& leaves) const {
    const bool fits = weight.data == source && weight.desc == desc && leaves.borders == borders;
    return fits ? bytes.get() : nullptr;
  }
};

LinearParallel::LinearParallel(const LinearSettings& settings)
    : LinearOperation(settings, SignatureOf(settings)) {}

LinearParallel::~LinearParallel() = default;

Status LinearParallel::DescribeOutputs(const RankPlace& place,
                                       const std::vector<TensorDesc>& inputs,
                                       std::vector<TensorDesc>* outputs) const {
  DType output_dtype = DType::kUndefined;
  COLLOPS_RETURN_IF_ERROR(FindOutputType(settings_, inputs, &output_dtype));
  LinearLayout layout;
  COLLOPS_RETURN_IF_ERROR(
      MakeLinearLayout(settings_, place.rank, place.rank_size, inputs, &layout));
  TensorDesc output = inputs[kX];
  output.dtype = output_dtype;
  output.shape = layout.output;
  outputs->push_back(output);
  output.dtype = inputs[kX].dtype;
  output.shape = layout.gathered;
  if (settings_.param.keepIntermediate) outputs->push_back(output);
  return Ok();
}

Status LinearParallel::CheckCounts(const Plan& plan) const {
  COLLOPS_CHECK_ARG(
      settings_.param.quantType != P::QUANT_TYPE_PER_GROUP || plan.inputs[kX].dtype != DType::kInt8,
      ERROR_INVALID_PARAM, signature().called(),
      settings_.voice.method == nullptr
          ? ": quantType 2 (QUANT_TYPE_PER_GROUP) is for x of floating point, got int8"
          : ": group_size is for x of floating point, got int8");
  return Ok();
}

Status LinearParallel::CheckSupport(DType dtype) const {
  COLLOPS_RETURN_IF_ERROR(communicator().Supports(Primitive::kGather, dtype, ReduceOp::kSum));
  COLLOPS_RETURN_IF_ERROR(
      communicator().Supports(Primitive::kReduce, DType::kFloat32, ReduceOp::kSum));
  return CheckProducts(communicator(), communicator().stream_compute());
}

Status LinearParallel::Complete(Plan* plan) const {
  auto planned = std::make_unique<LinearPlan>();
  LinearPlan& linear = *planned;
  COLLOPS_RETURN_IF_ERROR(MakeLinearLayout(settings_, communicator().rank(), communicator().size(),
                                           plan->inputs, &linear.layout));
  const std::string& engine = settings_.engine;
  linear.called = signature().called();
  const EnginePlace place = PlaceOf(linear.layout, communicator(), engine.empty());
  COLLOPS_RETURN_IF_ERROR(ChooseEngine(engine, place, &linear.engine, linear.called));
  if (TraceEnabled()) TraceChoice(communicator(), place, *linear.engine, !engine.empty());
  planned_engine_ = linear.engine->name;
  linear.rank_size = communicator().size();
  linear.dtype = plan->inputs[kX].dtype;
  linear.output_dtype = plan->outputs[kY].dtype;
  linear.stream_compute = communicator().stream_compute();
  linear.communicator = &communicator();
  linear.has_residual = settings_.param.hasResidual;
  linear.returns_gathered = settings_.param.keepIntermediate;
  if (settings_.averages) linear.divisor = static_cast<float>(linear.layout.scatter.ranks.size());
  COLLOPS_RETURN_IF_ERROR(PlanLinear(&linear));
  plan->workspace_bytes = static_cast<uint64_t>(linear.memory.bytes);
  plan->details = std::move(planned);
  return Ok();
}

void LinearParallel::AgreeOn(const Plan& plan, Agreement* agreement) const {
  AddLinearTerms(settings_, static_cast<const LinearPlan&>(*plan.details), agreement);
}

Status LinearParallel::Run(const Plan& plan, const VariantPack& pack, void* workspace,
                           void* stream) {
  LinearTensors tensors;
  tensors.x = pack.inputs[kX].data;
  tensors.weight = pack.inputs[kWeight].data;
  const auto& linear = static_cast<const LinearPlan&>(*plan.details);
  if (packed_ != nullptr && linear.layout.quant.kind != LinearQuant::kWeight) {
    tensors.packed_weight = packed_->For(pack.inputs[kWeight], linear.layout.leaves);
  }
  const LinearInputs at(settings_);
  const auto data = [&](int i) {
    return i < 0 ? nullptr : pack.inputs[static_cast<size_t>(i)].data;
  };
  tensors.bias = data(at.bias);
  tensors.scale = data(at.scale);
  tensors.token_scale = data(at.token_scale);
  tensors.residual = data(at.residual);
  tensors.output = pack.outputs[kY].data;
  if (settings_.param.keepIntermediate) tensors.gathered = pack.outputs[kGathered].data;
  return RunLinear(static_cast<const LinearPlan&>(*plan.details), tensors, *plan.agreement,
                   workspace, &communicator(), stream, plan.shared_from_this());
}

Status LinearParallel::Refuse(const Status& reason) {
  if (settings_.param.type == LinearParallelParam::PURE_LINEAR) return Ok();
  return communicator().Refuse(signature().called(), reason);
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
      communicator().device().kind == DeviceKind::kCpu, ERROR_UNSUPPORTED,
      "LinearParallel: prepack() is for weights on the CPU; a device reads them as they are");
  const int64_t rows = shape[shape.num_dims - 2];
  const int64_t columns = shape[shape.num_dims - 1];
  const bool trans = settings_.param.transWeight;
  const int64_t k = trans ? columns : rows;
  LinearLeaves leaves;
  COLLOPS_RETURN_IF_ERROR(
      FindLinearLeaves(settings_, communicator().rank(), communicator().size(), k, &leaves));
  // An int8 weight for an x of int8; for others it is read as it is.
  const kernels::GemmPlan gemm =
      PlanProduct(weight.desc.dtype, k, trans ? rows : columns, trans, false, leaves);
  auto packed = std::make_shared<PackedWeight>();
  packed->bytes = PackWeight(gemm, weight.data);
  COLLOPS_CHECK_ARG(packed->bytes != nullptr, ERROR_OUT_OF_HOST_MEMORY,
                    "LinearParallel: no memory for a packed weight of ",
                    kernels::PackedWeightBytes(gemm), " bytes");
  packed->desc = weight.desc;
  packed->source = weight.data;
  packed->trans_weight = trans;
  packed->borders = leaves.borders;
  packed_ = std::move(packed);
  return Ok();
}

void LinearParallel::TakeWeight(const LinearParallel& from) {
  const bool fits =
      from.packed_ != nullptr && from.packed_->trans_weight == settings_.param.transWeight;
  if (fits) packed_ = from.packed_;
}

static std::unique_ptr<CollectiveOperation> Make(const LinearSettings& settings) {
  if (HasExperts(settings.param.type)) return std::make_unique<ExpertsParallel>(settings);
  return std::make_unique<LinearParallel>(settings);
}

template <>
std::unique_ptr<CollectiveOperation> MakeOperator(const LinearParallelParam& param) {
  return Make(param);
}
template struct ParamFunctions<LinearParallelParam>;

Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  if (!options.engine.empty()) COLLOPS_RETURN_IF_ERROR(CheckEngineName(options.engine));
  LinearSettings settings = param;
  settings.engine = options.engine;
  settings.averages = options.averages;
  return Connect(param, Make(settings), operation);
}

Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation) {
  const auto* before = dynamic_cast<const LinearOperation*>(operation->get());
  COLLOPS_CHECK_ARG(before != nullptr, ERROR_INVALID_PARAM,
                    "LinearParallel: cannot update an operation named ", (*operation)->Name());
  std::unique_ptr<Operation> updated;
  COLLOPS_RETURN_IF_ERROR(CreateOperation(
      param, OperationOptions{before->settings().engine, before->settings().averages}, &updated));
  auto* const after = dynamic_cast<LinearParallel*>(updated.get());
  const auto* const packed = dynamic_cast<const LinearParallel*>(before);
  if (after != nullptr && packed != nullptr) after->TakeWeight(*packed);
  *operation = std::move(updated);
  return Ok();
}

}  // namespace collops

// LinearParallel with experts as an operator of two phases: checks, plan and agreement.
#include <cstring>
#include <utility>

#include "collops/operators/framework/tensor_check.h"
#include "collops/operators/linear_parallel/experts.h"

namespace collops {
namespace {

using P = LinearParallelParam;

constexpr const char* kExperts = "LinearParallel";
constexpr int kMostExperts = 16;
constexpr int64_t kMostRows = 204800;
constexpr int64_t kMostK = 24000;

// The inputs, with the two that only types with experts have.
struct ExpertsInputs : LinearInputs {
  explicit ExpertsInputs(const LinearSettings& settings) : LinearInputs(settings) {}
  size_t table() const { return static_cast<size_t>(end); }
  size_t most() const { return table() + 1; }
};

OpSignature ExpertsSignature(const LinearSettings& settings) {
  constexpr DTypeSet kFloating = SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32);
  OpSignature signature;
  signature.name = kExperts;
  signature.inputs = {{"x", Role::kData, kFloating, 2, Extent::kAny},
                      {"weight", Role::kData, kFloating, 3, Extent::kAny}};
  AddLinearInputs(settings, &signature);
  const ExpertsVoice names;
  signature.inputs.push_back(
      {names.table, Role::kRouting, SetOf(DType::kInt32, DType::kInt64), 2, Extent::kAny});
  signature.inputs.push_back({names.most, Role::kLength, SetOf(DType::kInt32), 1, Extent::kAny});
  signature.num_dims_code = ERROR_INVALID_TENSOR_DIM;
  return signature;
}

Status CheckPlaces(const P& param, int rank_size) {
  const int ep = param.moeInfo.epSize;
  const int tp = param.moeInfo.tpSize;
  COLLOPS_CHECK_ARG(ep >= 1 && tp >= 1 && ep * tp == rank_size, ERROR_INVALID_PARAM, kExperts,
                    ": moeInfo.epSize ", ep, " * tpSize ", tp, " must be rankSize ", rank_size);
  return Ok();
}

// Shapes against each other, of inputs that have passed CheckInputs.
Status MakeExpertsLayout(const LinearSettings& settings, const RankPlace& place,
                         const std::vector<TensorDesc>& inputs, ExpertsLayout* layout) {
  const P& param = settings.param;
  const ExpertsInputs at(settings);
  const Shape& weight = inputs[1].shape;
  const Shape& table = inputs[at.table()].shape;
  layout->to_experts = param.type == P::ALLTOALLVC_ALL_GATHER_GMM;
  layout->rank = place.rank;
  layout->rank_size = place.rank_size;
  layout->tp_size = param.moeInfo.tpSize;
  layout->experts = param.moeInfo.localExpertNums;
  layout->x_rows = inputs[0].shape[0];
  layout->output_rows = inputs[at.most()].shape[0];
  const ExpertsVoice names;
  COLLOPS_CHECK_ARG(weight[0] == layout->experts, ERROR_INVALID_TENSOR_DIM, kExperts, ": weight ",
                    ToString(weight), " has ", weight[0],
                    " matrices in dim 0 but moeInfo.localExpertNums is ", layout->experts);
  COLLOPS_RETURN_IF_ERROR(CheckExpertInputs(names, settings, inputs, layout));
  const int64_t places = param.moeInfo.epSize;
  const int64_t columns = places * layout->experts;
  COLLOPS_CHECK_ARG(table[0] == places && table[1] == columns, ERROR_INVALID_TENSOR_DIM, kExperts,
                    ": ", names.table, " must be [", places, ", ", columns,
                    "], epSize and epSize * localExpertNums, got ", ToString(table));
  COLLOPS_CHECK_ARG(layout->output_rows <= kMostRows, ERROR_INVALID_TENSOR_SIZE, kExperts, ": ",
                    names.most, " is ", layout->output_rows, ", the limit is ", kMostRows);
  COLLOPS_CHECK_ARG(layout->k <= kMostK, ERROR_INVALID_TENSOR_SIZE, kExperts, ": k is ", layout->k,
                    ", the limit with experts is ", kMostK);
  return Ok();
}

// The numbers of a table of int32 or int64, at any address.
std::vector<int64_t> ReadTable(const TensorView& table) {
  const auto count = static_cast<size_t>(Numel(table.desc.shape));
  std::vector<int64_t> numbers(count);
  if (table.desc.dtype == DType::kInt64) {
    std::memcpy(numbers.data(), table.data, count * sizeof(int64_t));
    return numbers;
  }
  std::vector<int32_t> narrow(count);
  std::memcpy(narrow.data(), table.data, count * sizeof(int32_t));
  numbers.assign(narrow.begin(), narrow.end());
  return numbers;
}

EnginePlace ExpertsPlace(const ExpertsLayout& layout, const Communicator& communicator) {
  EnginePlace place;
  place.backend = communicator.spec().backend;
  place.rank_size = layout.rank_size;
  place.gather_ranks = static_cast<size_t>(layout.rank_size);
  place.has_experts = true;
  place.has_windows = communicator.WindowPeers().all();
  place.on_device = communicator.device().kind != DeviceKind::kCpu;
  return place;
}

}  // namespace

Status CheckExperts(const P& param) {
  if (!HasExperts(param.type)) return Ok();
  if (param.rankSize != 0) COLLOPS_RETURN_IF_ERROR(CheckPlaces(param, param.rankSize));
  COLLOPS_CHECK_ARG(
      param.moeInfo.localExpertNums >= 1 && param.moeInfo.localExpertNums <= kMostExperts,
      ERROR_INVALID_PARAM, kExperts, ": moeInfo.localExpertNums must be in [1, ", kMostExperts,
      "], got ", param.moeInfo.localExpertNums);
  COLLOPS_CHECK_ARG(
      param.quantType != P::QUANT_TYPE_PER_TENSOR && param.quantType != P::QUANT_TYPE_PER_GROUP,
      ERROR_INVALID_PARAM, kExperts, ": quantType with experts must be -1, 1 ",
      "(QUANT_TYPE_PER_CHANNEL) or 3 (QUANT_TYPE_PER_TOKEN), got ",
      static_cast<int>(param.quantType));
  for (const auto& [name, rows] :
       {std::pair{"gatherRows", &param.gatherRows}, {"scatterRows", &param.scatterRows}}) {
    COLLOPS_CHECK_ARG(rows->empty(), ERROR_INVALID_PARAM, kExperts, ": ", name,
                      " must be empty for type ", static_cast<int>(param.type), " (",
                      Name(param.type), "), got length ", rows->size());
  }
  return Ok();
}

Status CheckRanks(const P& param, int /*rank*/, int rank_size) {
  return HasExperts(param.type) ? CheckPlaces(param, rank_size) : Ok();
}

ExpertsParallel::ExpertsParallel(const LinearSettings& settings)
    : LinearOperation(settings, ExpertsSignature(settings)) {}

Status ExpertsParallel::DescribeOutputs(const RankPlace& place,
                                        const std::vector<TensorDesc>& inputs,
                                        std::vector<TensorDesc>* outputs) const {
  DType dtype = DType::kUndefined;
  COLLOPS_RETURN_IF_ERROR(FindOutputType(settings_, inputs, &dtype));
  ExpertsLayout layout;
  COLLOPS_RETURN_IF_ERROR(MakeExpertsLayout(settings_, place, inputs, &layout));
  TensorDesc output = inputs[0];
  output.dtype = dtype;
  output.shape.dims[0] = layout.output_rows;
  output.shape.dims[1] = layout.n;
  outputs->push_back(output);
  return Ok();
}

Status ExpertsParallel::CheckSupport(DType dtype) const {
  return CheckExpertSupport(communicator(), communicator().stream_compute(), dtype);
}

Status ExpertsParallel::Complete(Plan* plan) const {
  auto planned = std::make_unique<ExpertsPlan>();
  COLLOPS_RETURN_IF_ERROR(MakeExpertsLayout(
      settings_, {communicator().rank(), communicator().size()}, plan->inputs, &planned->layout));
  planned->dtype = plan->inputs[0].dtype;
  planned->output_dtype = plan->outputs[0].dtype;
  planned->stream_compute = communicator().stream_compute();
  planned->has_residual = settings_.param.hasResidual;
  const ExpertsInputs at(settings_);
  if (at.scale >= 0) planned->scale_dtype = plan->inputs[static_cast<size_t>(at.scale)].dtype;
  planned->has_token_scale = at.token_scale >= 0;
  EnginePlace place = ExpertsPlace(planned->layout, communicator());
  place.has_int8 = planned->is_quantised();
  place.runs_int8 = planned->stream_compute != nullptr && planned->stream_compute->has_int8();
  const Engine* engine = nullptr;
  COLLOPS_RETURN_IF_ERROR(ChooseEngine(settings_.engine, place, &engine, kExperts));
  planned_engine_ = engine->name;
  COLLOPS_RETURN_IF_ERROR(PlanExperts(planned.get()));
  plan->workspace_bytes = static_cast<uint64_t>(planned->bytes);
  plan->details = std::move(planned);
  return Ok();
}

void ExpertsParallel::AgreeOn(const Plan& plan, Agreement* agreement) const {
  const P& param = settings_.param;
  const auto& planned = static_cast<const ExpertsPlan&>(*plan.details);
  agreement->EqualText("dtype", collops::Name(planned.dtype))
      .Equal("rankRoot", param.rankRoot)
      .Equal("type", param.type)
      .Equal("quantType", param.quantType)
      .EqualText("outDataType", collops::Name(planned.output_dtype))
      .Equal("localExpertNums", param.moeInfo.localExpertNums)
      .Equal("epSize", param.moeInfo.epSize)
      .Equal("tpSize", param.moeInfo.tpSize)
      .Equal("k", planned.layout.k)
      .Equal("n", planned.layout.n)
      .Equal("hasResidual", planned.sends_partials() ? 1 : 0)
      .EqualText("the engine", planned_engine().c_str());
}

Status ExpertsParallel::Run(const Plan& plan, const VariantPack& pack, void* workspace,
                            void* stream) {
  const ExpertsInputs at(settings_);
  const auto& planned = static_cast<const ExpertsPlan&>(*plan.details);
  const ExpertsLayout& layout = planned.layout;
  std::unique_ptr<ExpertRows> rows;
  Status own =
      ExpertRows::FromTable(layout, planned.voice, ReadTable(pack.inputs[at.table()]), &rows);
  if (own.ok()) own = rows->CheckFit(layout, planned.voice);
  Agreement agreement = *plan.agreement;
  const bool sends = layout.to_experts;
  if (own.ok()) {
    agreement
        .Pairwise("the rows sent", sends ? rows->to_rank() : rows->from_rank(), "the rows received",
                  sends ? rows->from_rank() : rows->to_rank(), layout.rank, layout.rank_size)
        .Equal("a hash of globalTokensPerExpertMatrix", rows->table_hash());
  }
  COLLOPS_RETURN_IF_ERROR(MeetForExperts(planned, agreement, own, &communicator(), stream));
  ExpertsTensors tensors;
  const auto data = [&pack](int i) {
    return i < 0 ? nullptr : pack.inputs[static_cast<size_t>(i)].data;
  };
  tensors.x = data(0);
  tensors.weight = data(1);
  tensors.scale = data(at.scale);
  tensors.token_scale = data(at.token_scale);
  tensors.residual = data(at.residual);
  tensors.output = pack.outputs[0].data;
  return RunExperts(planned, *rows, tensors, agreement, workspace, &communicator(), stream);
}

}  // namespace collops

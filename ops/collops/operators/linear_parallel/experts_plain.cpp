// The plain level's grouped products: counts of this rank alone in place of a table of all ranks.
#include <limits>
#include <utility>

#include "collops/operators/framework/tensor_check.h"
#include "collops/operators/linear_parallel/experts.h"
#include "collops/operators/plain/plans.h"

namespace collops {
namespace {

ExpertsVoice VoiceOf(const PlainCall& call) {
  return {call.name(), "send_sizes", "max_rows", "with trans_weight=True it is [experts, n, k]",
          "it is [experts, k, n]: for [experts, n, k] pass trans_weight=True"};
}

bool GoesToExperts(const PlainCall& call) {
  return call.method == PlainCall::kAllToAllVGroupedMatmul;
}

// As those of the struct that does the same.
LinearSettings SettingsOf(const PlainCall& call) {
  const ProductSpec& spec = call.product;
  LinearParallelParam param;
  param.type = GoesToExperts(call) ? LinearParallelParam::ALLTOALLVC_ALL_GATHER_GMM
                                   : LinearParallelParam::GMM_REDUCE_SCATTER_ALLTOALLVC;
  param.transWeight = spec.trans_weight;
  param.hasResidual = spec.has_residual;
  if (spec.has_scale) param.quantType = LinearParallelParam::QUANT_TYPE_PER_CHANNEL;
  param.outDataType = spec.out_dtype;
  LinearSettings settings = param;
  settings.scales_tokens = spec.has_x_scale;
  settings.voice.method = call.name();
  return settings;
}

OpSignature SignatureOf(const PlainCall& call) {
  constexpr DTypeSet kTypes = SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32);
  OpSignature signature;
  signature.name = call.operation();
  signature.method = call.name();
  signature.inputs = {{"x", Role::kData, kTypes, 2, Extent::kAny},
                      {"weight", Role::kData, kTypes, 3, Extent::kAny}};
  AddLinearInputs(SettingsOf(call), &signature);
  signature.outputs = {"out"};
  if (call.product.returns_rows) signature.outputs.push_back("the rows");
  signature.num_dims_code = ERROR_INVALID_TENSOR_DIM;
  return signature;
}

// One number for each expert of every rank, none below 0.
Status CheckCounts(const PlainCall& call, const char* label, const Rows& counts, int rank_size,
                   int64_t* sum) {
  const int64_t experts = call.experts();
  COLLOPS_CHECK_ARG(static_cast<int64_t>(counts.size()) == rank_size * experts, ERROR_INVALID_PARAM,
                    call.name(), ": ", label, " must be [", rank_size, ", ", experts,
                    "], a line for each rank and a number for each matrix of weight, got ",
                    counts.size(), " numbers");
  *sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto line = static_cast<int64_t>(i) / experts;
    const auto column = static_cast<int64_t>(i) % experts;
    COLLOPS_CHECK_ARG(counts[i] >= 0, ERROR_INVALID_PARAM, call.name(), ": ", label, "[", line,
                      "][", column, "] must be >= 0, got ", counts[i]);
    COLLOPS_CHECK_ARG(counts[i] <= std::numeric_limits<int64_t>::max() - *sum, ERROR_INVALID_PARAM,
                      call.name(), ": the sum of ", label, " up to [", line, "][", column,
                      "] exceeds an int64");
    *sum += counts[i];
  }
  return Ok();
}

// x has as many rows as the counts say.
Status CheckSumOf(const PlainCall& call, const char* label, int64_t sum) {
  const int64_t rows = call.inputs[0].shape[0];
  COLLOPS_CHECK_ARG(rows == sum, ERROR_INVALID_PARAM, call.name(), ": ", label, " have a sum of ",
                    sum, " but x has ", rows, " rows: they must be equal");
  return Ok();
}

Status CheckReceived(const PlainCall& call, int rank, int rank_size, int64_t* sum) {
  COLLOPS_RETURN_IF_ERROR(CheckCounts(call, "recv_sizes", call.receives, rank_size, sum));
  const int64_t experts = call.experts();
  for (int64_t l = 0; l < experts; ++l) {
    const auto own = static_cast<size_t>(rank * experts + l);
    COLLOPS_CHECK_ARG((*call.sizes)[own] == call.receives[own], ERROR_INVALID_PARAM, call.name(),
                      ": send_sizes[", rank, "][", l, "] is ", (*call.sizes)[own],
                      " but recv_sizes[", rank, "][", l, "] is ", call.receives[own],
                      ": a rank's rows for its own experts are both");
  }
  if (!GoesToExperts(call)) return CheckSumOf(call, "recv_sizes", *sum);
  const std::optional<int64_t>& most = call.product.max_rows;
  COLLOPS_CHECK_ARG(!most || *sum <= *most, ERROR_INVALID_PARAM, call.name(), ": rank ", rank,
                    " receives ", *sum, " rows but max_rows is ", *most);
  return Ok();
}

// For each pair of ranks, what tells apart two ways of sharing rows among a rank's experts.
Rows HashesOf(const Rows& counts, int64_t experts) {
  const auto each = static_cast<size_t>(experts);
  Rows hashes;
  for (size_t i = 0; i < counts.size(); i += each) {
    hashes.push_back(HashOf(counts.data() + i, each));
  }
  return hashes;
}

constexpr TermWords kWords[] = {{"k", "x has k =", " columns"},
                                {"n", "weight has n =", " columns of a matrix"},
                                {"experts", "weight has", " matrices"}};

// What does not depend on what other ranks send. Fills in of the layout what the tensors say.
Status CheckOwn(const PlainCall& call, const Communicator& group, const OpSignature& signature,
                const LinearSettings& settings, ExpertsLayout* layout, DType* output) {
  COLLOPS_RETURN_IF_ERROR(CheckInputs(signature, group.size(), call.inputs));
  COLLOPS_CHECK_ARG(call.experts() > 0, ERROR_INVALID_TENSOR_DIM, call.name(), ": weight ",
                    ToString(call.inputs[1].shape), " has no matrices: each rank has at least one");
  COLLOPS_RETURN_IF_ERROR(FindOutputType(settings, call.inputs, output));
  layout->to_experts = GoesToExperts(call);
  layout->rank = group.rank();
  layout->rank_size = group.size();
  layout->experts = call.experts();
  layout->x_rows = call.inputs[0].shape[0];
  COLLOPS_RETURN_IF_ERROR(CheckExpertInputs(VoiceOf(call), settings, call.inputs, layout));
  int64_t sum = 0;
  COLLOPS_RETURN_IF_ERROR(CheckCounts(call, "send_sizes", *call.sizes, group.size(), &sum));
  return GoesToExperts(call) ? CheckSumOf(call, "send_sizes", sum) : Ok();
}

// One call: it is neither found nor kept, so that numbers of rows do not fill the cache of plans.
class GroupedPlan : public PlainPlan {
 public:
  explicit GroupedPlan(const PlainCall& call)
      : PlainPlan(call.name(), call.operation()),
        signature_(SignatureOf(call)),
        inputs_(call.inputs),
        settings_(SettingsOf(call)),
        agreement_(call.operation()) {}

  Status Make(const PlainCall& call, Communicator& group) {
    ExpertsLayout& layout = planned_.layout;
    COLLOPS_RETURN_IF_ERROR(
        CheckOwn(call, group, signature_, settings_, &layout, &planned_.output_dtype));
    int64_t sum = 0;
    COLLOPS_RETURN_IF_ERROR(CheckReceived(call, layout.rank, layout.rank_size, &sum));
    planned_.voice = VoiceOf(call);
    planned_.dtype = call.inputs[0].dtype;
    planned_.has_residual = call.product.has_residual;
    planned_.stream_compute = group.stream_compute();
    const LinearInputs at(settings_);
    if (at.scale >= 0) planned_.scale_dtype = inputs_[static_cast<size_t>(at.scale)].dtype;
    planned_.has_token_scale = at.token_scale >= 0;
    rows_ = std::make_unique<ExpertRows>(layout, *call.sizes, call.receives);
    layout.output_rows = layout.to_experts ? rows_->of_experts() : rows_->own();
    TensorDesc output = inputs_[0];
    output.shape.dims[0] = layout.output_rows;
    output.shape.dims[1] = layout.k;
    TensorDesc products = output;
    products.dtype = planned_.output_dtype;
    products.shape.dims[1] = layout.n;
    outputs_.push_back(products);
    if (call.product.returns_rows) outputs_.push_back(output);
    COLLOPS_RETURN_IF_ERROR(CheckOutputSizes(signature_, outputs_));
    COLLOPS_RETURN_IF_ERROR(PlanExperts(&planned_));
    AgreeOn(call);
    return Ok();
  }

  std::vector<int64_t> output_shape() const override {
    const Shape& shape = outputs_[0].shape;
    return {shape.dims, shape.dims + shape.num_dims};
  }

  DType output_dtype() const override {
    return planned_.is_quantised() ? planned_.output_dtype : DType::kUndefined;
  }

  Status Check(const Communicator& communicator, const PlainTensors& tensors) const override {
    const VariantPack pack = PackOf(tensors);
    COLLOPS_RETURN_IF_ERROR(CheckOutputs(signature_, outputs_, pack.outputs));
    TensorBytes bytes;
    for (const TensorDesc& input : inputs_) bytes.inputs.push_back(NumBytes(input));
    for (const TensorDesc& output : outputs_) bytes.outputs.push_back(NumBytes(output));
    COLLOPS_RETURN_IF_ERROR(CheckMemory(signature_, pack, bytes, communicator.device()));
    COLLOPS_RETURN_IF_ERROR(CheckAddresses(signature_, pack, bytes));
    return CheckExpertSupport(communicator, planned_.stream_compute, planned_.dtype);
  }

  uint64_t DeviceWorkspace(const Communicator& communicator,
                           const PlainTensors& tensors) const override {
    return Check(communicator, tensors).ok() ? static_cast<uint64_t>(planned_.bytes) : 0;
  }

  Status Run(Communicator* communicator, const PlainTensors& tensors) const override {
    Status own = Check(*communicator, tensors);
    void* memory = tensors.workspace;
    if (own.ok() && planned_.stream_compute == nullptr) {
      memory = PlainScratch(static_cast<uint64_t>(planned_.bytes));
      if (memory == nullptr) {
        own = Error(ERROR_OUT_OF_HOST_MEMORY, method(), ": no memory for ", planned_.bytes,
                    " bytes of workspace");
      }
    }
    COLLOPS_RETURN_IF_ERROR(
        MeetForExperts(planned_, agreement_, own, communicator, tensors.stream));
    ExpertsTensors of_call;
    of_call.x = tensors.x.view.data;
    const LinearInputs at(settings_);
    const auto data = [&tensors](int i) {
      return i < 0 ? nullptr : tensors.others[static_cast<size_t>(i) - 1].view.data;
    };
    of_call.weight = data(1);
    of_call.scale = data(at.scale);
    of_call.token_scale = data(at.token_scale);
    of_call.residual = data(at.residual);
    of_call.output = tensors.out.view.data;
    if (outputs_.size() > 1) of_call.rows = tensors.rows.view.data;
    return RunExperts(planned_, *rows_, of_call, agreement_, memory, communicator, tensors.stream);
  }

 private:
  void AgreeOn(const PlainCall& call) {
    const ExpertsLayout& layout = planned_.layout;
    const bool sends = layout.to_experts;
    const Rows to = HashesOf(*call.sizes, layout.experts);
    const Rows from = HashesOf(call.receives, layout.experts);
    agreement_.EqualText("dtype", Name(planned_.dtype))
        .EqualText("out_dtype", Name(planned_.output_dtype))
        .Equal("whether x_scale is given", planned_.has_token_scale ? 1 : 0)
        .Equal("experts", layout.experts)
        .Equal("k", layout.k)
        .Equal("n", layout.n)
        .Equal("whether a residual is given", planned_.sends_partials() ? 1 : 0)
        .Pairwise("the rows sent", sends ? rows_->to_rank() : rows_->from_rank(),
                  "the rows received", sends ? rows_->from_rank() : rows_->to_rank(), layout.rank,
                  layout.rank_size)
        .PairwiseUnseen("the rows of single experts in send_sizes and recv_sizes", to.data(),
                        from.data(), layout.rank, layout.rank_size)
        .InPlainWords(method(), 1, std::data(kWords), static_cast<int>(std::size(kWords)));
  }

  VariantPack PackOf(const PlainTensors& tensors) const {
    VariantPack pack;
    pack.inputs.push_back(tensors.x.view);
    for (const PlainTensor& other : tensors.others) pack.inputs.push_back(other.view);
    pack.outputs.push_back(tensors.out.view);
    if (outputs_.size() > 1) pack.outputs.push_back(tensors.rows.view);
    return pack;
  }

  const OpSignature signature_;
  const std::vector<TensorDesc> inputs_;
  const LinearSettings settings_;
  std::vector<TensorDesc> outputs_;
  ExpertsPlan planned_;
  std::unique_ptr<ExpertRows> rows_;
  Agreement agreement_;
};

}  // namespace

Status CheckGrouped(const PlainCall& call, const Communicator& group) {
  ExpertsLayout layout;
  DType output = DType::kUndefined;
  return CheckOwn(call, group, SignatureOf(call), SettingsOf(call), &layout, &output);
}

Status PlanGrouped(const PlainCall& call, Communicator& group, PlanPointer* plan) {
  auto made = std::make_shared<GroupedPlan>(call);
  COLLOPS_RETURN_IF_ERROR(made->Make(call, group));
  *plan = std::move(made);
  return Ok();
}

}  // namespace collops

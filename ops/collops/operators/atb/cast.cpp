#include <cstring>
#include <utility>
#include <vector>

#include "collops/kernels/half.h"
#include "collops/operators/atb/params.h"

namespace collops {
namespace atb {
namespace infer {
namespace {

constexpr const char* kOp = "Elewise";

bool IsCastable(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

float Load(const char* data, DType dtype, int64_t index) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, data + index * 4, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, data + index * 2, sizeof(half));
  return dtype == DType::kFloat16 ? kernels::Float16ToFloat(half) : kernels::BFloat16ToFloat(half);
}

void Store(float value, DType dtype, int64_t index, char* data) {
  if (dtype == DType::kFloat32) {
    std::memcpy(data + index * 4, &value, sizeof(value));
    return;
  }
  const uint16_t half =
      dtype == DType::kFloat16 ? kernels::FloatToFloat16(value) : kernels::FloatToBFloat16(value);
  std::memcpy(data + index * 2, &half, sizeof(half));
}

collops::Status CheckAddress(const char* name, const TensorView& tensor) {
  COLLOPS_CHECK_ARG(tensor.data != nullptr || Numel(tensor.desc.shape) == 0,
                    ERROR_INVALID_TENSOR_ADDR, kOp, ": ", name, " of shape ",
                    ToString(tensor.desc.shape), " has no address");
  return Ok();
}

// ATB's ELEWISE_CAST between float32, float16 and bfloat16: one tensor, no other ranks.
class Cast : public collops::Operation {
 public:
  explicit Cast(DType to) : to_(to) {}

  const char* Name() const override { return kOp; }
  int NumInputs() const override { return 1; }
  int NumOutputs() const override { return 1; }

  collops::Status InferShape(const std::vector<collops::TensorDesc>& inputs,
                             std::vector<collops::TensorDesc>* outputs) const override {
    COLLOPS_CHECK_ARG(inputs.size() == 1, ERROR_INVALID_IN_TENSOR_NUM, kOp,
                      ": one input is needed, got ", inputs.size());
    const collops::TensorDesc& input = inputs[0];
    COLLOPS_CHECK_ARG(IsCastable(input.dtype), ERROR_INVALID_TENSOR_INI_MATCH, kOp,
                      ": the input is ", NameOfType(input),
                      ", which is not converted: only float32, float16 and ", "bfloat16 are");
    COLLOPS_CHECK_ARG(input.shape.num_dims >= 1 && input.shape.num_dims <= kMaxDims,
                      ERROR_INVALID_TENSOR_DIM, kOp,
                      ": the input must have 1 to 8 dimensions, got ", input.shape.num_dims);
    *outputs = inputs;
    (*outputs)[0].dtype = to_;
    return Ok();
  }

  collops::Status GetWorkspaceSize(const collops::VariantPack& pack, uint64_t* bytes) override {
    *bytes = 0;
    return Check(pack);
  }

  collops::Status Execute(const collops::VariantPack& pack, void* /*workspace*/,
                          uint64_t /*workspace_bytes*/, void* /*stream*/) override {
    COLLOPS_RETURN_IF_ERROR(Check(pack));
    const TensorView& from = pack.inputs[0];
    const auto* const source = static_cast<const char*>(from.data);
    auto* const target = static_cast<char*>(pack.outputs[0].data);
    for (int64_t i = 0; i < Numel(from.desc.shape); ++i) {
      Store(Load(source, from.desc.dtype, i), to_, i, target);
    }
    return Ok();
  }

  collops::Status Refuse(const collops::Status& /*reason*/) override { return Ok(); }

 private:
  collops::Status Check(const collops::VariantPack& pack) const {
    std::vector<collops::TensorDesc> inputs;
    for (const TensorView& view : pack.inputs) inputs.push_back(view.desc);
    std::vector<collops::TensorDesc> outputs;
    COLLOPS_RETURN_IF_ERROR(InferShape(inputs, &outputs));
    COLLOPS_CHECK_ARG(pack.outputs.size() == 1, ERROR_INVALID_IN_TENSOR_NUM, kOp,
                      ": one output is needed, got ", pack.outputs.size());
    const collops::TensorDesc& got = pack.outputs[0].desc;
    COLLOPS_CHECK_ARG(got.dtype == to_ && got.shape == outputs[0].shape, ERROR_INVALID_TENSOR_DIM,
                      kOp, ": the output must be ", collops::Name(to_), " ",
                      ToString(outputs[0].shape), ", got ", NameOfType(got), " ",
                      ToString(got.shape));
    COLLOPS_RETURN_IF_ERROR(CheckAddress("x", pack.inputs[0]));
    return CheckAddress("y", pack.outputs[0]);
  }

  const DType to_;
};

}  // namespace

collops::Status Make(const ElewiseParam& param, std::unique_ptr<collops::Operation>* operation) {
  COLLOPS_CHECK_ARG(param.elewiseType == ElewiseParam::ELEWISE_CAST, ERROR_INVALID_PARAM, kOp,
                    ": elewiseType must be 1 (ELEWISE_CAST), got ",
                    static_cast<int>(param.elewiseType),
                    ": collops has no other elementwise operator of ATB");
  const auto to = static_cast<DType>(param.outTensorType);
  COLLOPS_CHECK_ARG(IsCastable(to), ERROR_INVALID_PARAM, kOp,
                    ": outTensorType must be ACL_FLOAT (0), ACL_FLOAT16 (1) or ACL_BF16 (27), got ",
                    static_cast<int>(param.outTensorType));
  *operation = std::make_unique<Cast>(to);
  return Ok();
}

collops::Status Make(const TransdataParam& /*param*/,
                     std::unique_ptr<collops::Operation>* /*operation*/) {
  return Error(ERROR_INVALID_PARAM,
               "Transdata: collops has no operator that changes the format of a tensor: only ND is "
               "supported");
}

}  // namespace infer
}  // namespace atb
}  // namespace collops

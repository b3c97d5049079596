#include "collops/operators/linear_parallel/linear_operation.h"

#include <vector>

namespace collops {
namespace {

using P = LinearParallelParam;

constexpr DTypeSet kFloats = SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32);
constexpr DTypeSet kScales = kFloats | SetOf(DType::kInt64);
constexpr DTypeSet kBiases = kFloats | SetOf(DType::kInt32);

constexpr DType kAnyDType = DType::kUndefined;

bool IsIn(DTypeSet set, DType dtype) {
  return dtype != DType::kUndefined && (set >> static_cast<int>(dtype) & 1) != 0;
}

// Element types that go together, x's and the weight's first.
class DTypeRows {
 public:
  explicit DTypeRows(const LinearSettings& settings) : at_(settings), settings_(settings) {}

  std::vector<std::vector<DType>> All() {
    const bool plain = settings_.voice.method != nullptr;
    const bool widens = at_.bias >= 0;  // an int8 weight for rows of floating point
    if (widens) {
      for (const DType x : {DType::kFloat16, DType::kBFloat16}) AddInt8Weight(x, x);
    }
    if (widens && plain) {
      AddInt8Weight(DType::kFloat32, DType::kFloat32);
      for (const DType x : {DType::kFloat16, DType::kBFloat16}) AddInt8Weight(x, DType::kFloat32);
    }
    const DType output = settings_.param.outDataType;
    const DType residual = IsIn(kFloats, output) ? output : plain ? DType::kFloat32 : kAnyDType;
    Add(DType::kInt8, DType::kInt32, DType::kInt64, residual);
    Add(DType::kInt8, DType::kInt32, DType::kFloat32, residual);
    return rows_;
  }

 private:
  void AddInt8Weight(DType x, DType scale) { Add(x, scale, scale, x); }

  void Add(DType x, DType bias, DType scale, DType residual) {
    std::vector<DType> row = {x, DType::kInt8};
    if (at_.bias >= 0) row.push_back(bias);
    row.push_back(scale);
    if (at_.residual >= 0) row.push_back(residual);
    if (at_.token_scale >= 0) row.push_back(DType::kFloat32);
    rows_.push_back(row);
  }

  const LinearInputs at_;
  const LinearSettings& settings_;
  std::vector<std::vector<DType>> rows_;
};

}  // namespace

Status CheckQuantType(const P& param) {
  const int type = param.quantType;
  COLLOPS_CHECK_ARG(type >= P::QUANT_TYPE_UNQUANT && type < P::QUANT_TYPE_MAX, ERROR_INVALID_PARAM,
                    "LinearParallel: quantType must be in [-1, 3], got ", type);
  const bool has_token_scale =
      param.type == P::LINEAR_ALL_REDUCE || param.type > P::ALL_GATHER_LINEAR_REDUCE_SCATTER;
  COLLOPS_CHECK_ARG(
      type != P::QUANT_TYPE_PER_TOKEN || has_token_scale, ERROR_INVALID_PARAM,
      "LinearParallel: quantType 3 (QUANT_TYPE_PER_TOKEN) needs type 0, 5 or 6, got type ",
      static_cast<int>(param.type), " (", Name(param.type),
      "): as in ATB; the plain methods take x_scale= for all products");
  return Ok();
}

void AddLinearInputs(const LinearSettings& settings, OpSignature* signature) {
  std::vector<InputRule>& inputs = signature->inputs;
  const LinearInputs at(settings);
  if (at.scale >= 0) {
    for (size_t i = 0; i < 2; ++i) inputs[i].dtypes |= SetOf(DType::kInt8);
  }
  if (at.bias >= 0) {
    inputs.push_back({"bias", Role::kData, kBiases, 1, Extent::kAny, 2});
    inputs.back().may_be_missing = true;
  }
  if (at.scale >= 0) {
    inputs.push_back({"scale", Role::kData, kScales, 1, Extent::kAny, 2});
  }
  if (at.residual >= 0) {
    inputs.push_back({"residual", Role::kData, kFloats, 1, Extent::kAny, 2});
  }
  if (at.token_scale >= 0) {
    inputs.push_back({LinearInputs::token_scale_name(settings.voice), Role::kData,
                      SetOf(DType::kFloat32), 1, Extent::kAny, 2});
  }
  if (at.scale >= 0) {
    signature->dtype_rows = DTypeRows(settings).All();
  } else {
    signature->one_dtype = true;
  }
}

Status FindOutputType(const LinearSettings& settings, const std::vector<TensorDesc>& inputs,
                      DType* output) {
  const DType x = inputs[0].dtype;
  const DType wanted = settings.param.outDataType;
  const bool is_plain = settings.voice.method != nullptr;
  *output = wanted == DType::kUndefined ? x : wanted;
  if (x != DType::kInt8) {
    COLLOPS_CHECK_ARG(*output == x || is_plain, ERROR_INVALID_TENSOR_INI_MATCH,
                      "LinearParallel: outDataType is ", static_cast<int>(wanted), " (",
                      collops::Name(wanted), ") but x is ", collops::Name(x),
                      ": leave it at -1 or pass x's");
    COLLOPS_CHECK_ARG(*output == x, ERROR_INVALID_TENSOR_INI_MATCH, settings.voice.called(),
                      ": out_dtype is ", collops::Name(wanted), " but x is ", collops::Name(x),
                      ": leave it out or pass x's");
    return Ok();
  }
  if (is_plain) {
    if (wanted == DType::kUndefined) *output = DType::kFloat32;
    COLLOPS_CHECK_ARG(
        IsIn(kFloats, *output), ERROR_INVALID_TENSOR_INI_MATCH, settings.voice.called(),
        ": out_dtype must be float32, float16 or bfloat16, got ", collops::Name(wanted));
    return Ok();
  }
  COLLOPS_CHECK_ARG(wanted == DType::kFloat16 || wanted == DType::kBFloat16,
                    ERROR_INVALID_TENSOR_INI_MATCH,
                    "LinearParallel: x is int8, so outDataType must be 1 (float16) or 27 "
                    "(bfloat16), got ",
                    static_cast<int>(wanted));
  const DType scale = inputs[static_cast<size_t>(LinearInputs(settings).scale)].dtype;
  COLLOPS_CHECK_ARG(scale == DType::kInt64 || wanted == DType::kBFloat16,
                    ERROR_INVALID_TENSOR_INI_MATCH,
                    "LinearParallel: scale is float32, but with outDataType 1 (float16) it is "
                    "int64, whose lower half is a float32");
  return Ok();
}

}  // namespace collops

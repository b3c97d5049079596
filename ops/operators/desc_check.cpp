#include "operators/desc_check.h"

#include <algorithm>
#include <string>

namespace collops {
namespace {

constexpr int64_t kMaxTensorBytes = int64_t{256} << 30;

bool Contains(DTypeSet set, DType dtype) {
  return dtype != DType::kUndefined && (set >> static_cast<int>(dtype) & 1) != 0;
}

std::string ToString(DTypeSet set) {
  std::string text;
  for (int number = 0; number < 32; ++number) {
    const DType dtype = static_cast<DType>(number);
    if (Contains(set, dtype)) text += (text.empty() ? "" : ", ") + std::string(Name(dtype));
  }
  return text;
}

// Divides instead of multiplying, so no size can overflow. A dtype that is refused later counts as
// one byte.
bool IsTooLarge(const TensorDesc& desc) {
  int64_t room = kMaxTensorBytes / std::max<int64_t>(SizeOf(desc.dtype), 1);
  for (int i = 0; i < desc.shape.num_dims; ++i) {
    if (desc.shape[i] == 0) return false;
    room /= desc.shape[i];
  }
  return room == 0;
}

Status CheckNumDimsLimit(const Signature& op, const InputRule& rule, const TensorDesc& desc) {
  CHECK_ARG(desc.shape.num_dims <= kMaxDims, ERROR_INVALID_TENSOR_DIM, op.name, ": ", rule.name,
            " has ", desc.shape.num_dims, " dims, the limit is ", kMaxDims, ": flatten some");
  CHECK_ARG(desc.shape.num_dims > 0 || rule.num_dims != kAnyNumDims, ERROR_INVALID_TENSOR_DIM,
            op.name, ": ", rule.name, " has 0 dims, it needs 1 to ", kMaxDims,
            ": reshape it to [1]");
  return Ok();
}

Status CheckSize(const Signature& op, const char* name, const TensorDesc& desc) {
  for (int i = 0; i < desc.shape.num_dims; ++i) {
    CHECK_ARG(desc.shape[i] >= (i == 0 ? 0 : 1), ERROR_INVALID_TENSOR_SIZE, op.name, ": ", name,
              " has size ", desc.shape[i], " in dim ", i, " of ", ToString(desc.shape),
              ": only dim 0 may be 0");
  }
  CHECK_ARG(!IsTooLarge(desc), ERROR_INVALID_TENSOR_SIZE, op.name, ": ", name, " of shape ",
            ToString(desc.shape), " is over the limit of 256 GB: split the call");
  return Ok();
}

Status CheckDType(const Signature& op, const InputRule& rule, const TensorDesc& desc) {
  if (Contains(rule.dtypes, desc.dtype)) return Ok();
  const char* got = Name(desc.dtype);
  switch (rule.role) {
    case Role::kData:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name, " is ", got,
                   "; pass one of ", ToString(rule.dtypes));
    case Role::kCounts:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name, " is ", got,
                   "; counts are elements as int64: convert it");
    case Role::kLength:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name,
                   " is only a length: pass an empty float16 tensor of ", desc.shape[0], ", got ",
                   got);
  }
  return Ok();
}

Status CheckFormat(const Signature& op, const char* name, const TensorDesc& desc) {
  CHECK_ARG(desc.format == Format::kND, ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", name,
            " has format ", Name(desc.format), "; pass it as nd");
  return Ok();
}

Status CheckNumDims(const Signature& op, const InputRule& rule, const TensorDesc& desc) {
  CHECK_ARG(rule.num_dims == kAnyNumDims || desc.shape.num_dims == rule.num_dims,
            ERROR_INVALID_TENSOR_DIM_NUM, op.name, ": ", rule.name, " must have ", rule.num_dims,
            rule.num_dims == 1 ? " dim" : " dims", ", got ", desc.shape.num_dims, " in shape ",
            ToString(desc.shape));
  return Ok();
}

Status CheckExtent(const Signature& op, const InputRule& rule, int rank_size,
                   const TensorDesc& desc) {
  if (rule.extent == Extent::kAny) return Ok();
  const int64_t want = rule.extent == Extent::kOne ? 1 : rank_size;
  CHECK_ARG(desc.shape[0] == want, ERROR_INVALID_TENSOR_DIM, op.name, ": ", rule.name,
            " must have ", want, want == 1 ? " element" : " elements, one per rank", ", got ",
            desc.shape[0]);
  return Ok();
}

}  // namespace

Status CheckInputs(const Signature& op, int rank_size, const std::vector<TensorDesc>& inputs) {
  const size_t n = op.inputs.size();
  CHECK_ARG(inputs.size() == n, ERROR_INVALID_IN_TENSOR_NUM, op.name, ": needs ", n,
            " inputs, got ", inputs.size());
  for (size_t i = 0; i < n; ++i) RETURN_IF_ERROR(CheckNumDimsLimit(op, op.inputs[i], inputs[i]));
  for (size_t i = 0; i < n; ++i) RETURN_IF_ERROR(CheckSize(op, op.inputs[i].name, inputs[i]));
  for (size_t i = 0; i < n; ++i) {
    RETURN_IF_ERROR(CheckDType(op, op.inputs[i], inputs[i]));
    RETURN_IF_ERROR(CheckFormat(op, op.inputs[i].name, inputs[i]));
  }
  for (size_t i = 0; i < n; ++i) RETURN_IF_ERROR(CheckNumDims(op, op.inputs[i], inputs[i]));
  for (size_t i = 0; i < n; ++i) {
    RETURN_IF_ERROR(CheckExtent(op, op.inputs[i], rank_size, inputs[i]));
  }
  return Ok();
}

Status CheckOutputSize(const Signature& op, const TensorDesc& output) {
  return CheckSize(op, "the output", output);
}

Status CheckOutput(const Signature& op, const TensorDesc& want,
                   const std::vector<TensorView>& outputs) {
  CHECK_ARG(outputs.size() == 1, ERROR_INVALID_IN_TENSOR_NUM, op.name, ": needs 1 output, got ",
            outputs.size());
  const TensorDesc& got = outputs[0].desc;
  CHECK_ARG(got.shape.num_dims == want.shape.num_dims, ERROR_INVALID_TENSOR_DIM_NUM, op.name,
            ": the output must have ", want.shape.num_dims, " dims, as ", op.inputs[0].name,
            ", got ", got.shape.num_dims);
  CHECK_ARG(got.shape == want.shape, ERROR_INVALID_TENSOR_DIM, op.name,
            ": the output must have shape ", ToString(want.shape), ", got ", ToString(got.shape));
  CHECK_ARG(got.dtype == want.dtype, ERROR_INVALID_TENSOR_INI_MATCH, op.name,
            ": the output must be ", Name(want.dtype), " as ", op.inputs[0].name, ", got ",
            Name(got.dtype));
  return CheckFormat(op, "the output", got);
}

}  // namespace collops

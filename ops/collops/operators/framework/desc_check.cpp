#include "collops/operators/framework/desc_check.h"

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

Status CheckNumDimsLimit(const OpSignature& op, const InputRule& rule, const TensorDesc& desc) {
  COLLOPS_CHECK_ARG(desc.shape.num_dims <= kMaxDims, ERROR_INVALID_TENSOR_DIM, op.name, ": ",
                    rule.name, " has ", desc.shape.num_dims, " dims, the limit is ", kMaxDims,
                    ": flatten some");
  COLLOPS_CHECK_ARG(desc.shape.num_dims > 0 || rule.num_dims != kAnyNumDims,
                    ERROR_INVALID_TENSOR_DIM, op.name, ": ", rule.name,
                    " has 0 dims, it needs 1 to ", kMaxDims, ": reshape it to [1]");
  return Ok();
}

Status CheckSize(const OpSignature& op, const char* name, const TensorDesc& desc) {
  for (int i = 0; i < desc.shape.num_dims; ++i) {
    COLLOPS_CHECK_ARG(desc.shape[i] >= (i == 0 ? 0 : 1), ERROR_INVALID_TENSOR_SIZE, op.name, ": ",
                      name, " has size ", desc.shape[i], " in dim ", i, " of ",
                      ToString(desc.shape),
                      desc.shape[i] < 0 ? ": a size is at least 0" : ": only dim 0 may be 0");
  }
  COLLOPS_CHECK_ARG(!IsTooLarge(desc), ERROR_INVALID_TENSOR_SIZE, op.name, ": ", name, " of shape ",
                    ToString(desc.shape), " is over the limit of 256 GB: split the call");
  return Ok();
}

Status CheckDType(const OpSignature& op, const InputRule& rule, const TensorDesc& desc) {
  if (Contains(rule.dtypes, desc.dtype)) return Ok();
  const char* got = Name(desc.dtype);
  switch (rule.role) {
    case Role::kData:
    case Role::kInPlace:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name, " is ", got,
                   "; pass one of ", ToString(rule.dtypes));
    case Role::kCounts:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name, " is ", got,
                   "; counts are elements as int64: convert it");
    case Role::kLength:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", rule.name,
                   " is only a length: pass an empty ", ToString(rule.dtypes), " tensor of ",
                   desc.shape[0], ", got ", got);
  }
  return Ok();
}

Status CheckFormat(const OpSignature& op, const char* name, const TensorDesc& desc) {
  COLLOPS_CHECK_ARG(desc.format == Format::kND, ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", name,
                    " has format ", Name(desc.format), "; pass it as nd");
  return Ok();
}

Status CheckOneDType(const OpSignature& op, const std::vector<TensorDesc>& inputs) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    COLLOPS_CHECK_ARG(!op.one_dtype || inputs[i].dtype == inputs[0].dtype,
                      ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ", op.inputs[i].name, " is ",
                      Name(inputs[i].dtype), " but ", op.inputs[0].name, " is ",
                      Name(inputs[0].dtype), ": convert one of them");
  }
  return Ok();
}

Status CheckNumDims(const OpSignature& op, const InputRule& rule, const TensorDesc& desc) {
  const int got = desc.shape.num_dims;
  const int most = std::max(rule.num_dims, rule.most_dims);
  if (rule.num_dims == kAnyNumDims || (got >= rule.num_dims && got <= most)) return Ok();
  const std::string range = most > rule.num_dims ? Concat(" or ", most) : "";
  return Error(op.num_dims_code, op.name, ": ", rule.name, " must have ", rule.num_dims, range,
               most == 1 ? " dim" : " dims", ", got ", got, " in shape ", ToString(desc.shape));
}

Status CheckExtent(const OpSignature& op, const InputRule& rule, int rank_size,
                   const TensorDesc& desc) {
  if (rule.extent == Extent::kAny) return Ok();
  const int64_t want = rule.extent == Extent::kOne ? 1 : rank_size;
  COLLOPS_CHECK_ARG(desc.shape[0] == want, ERROR_INVALID_TENSOR_DIM, op.name, ": ", rule.name,
                    " must have ", want, want == 1 ? " element" : " elements, one per rank",
                    ", got ", desc.shape[0]);
  return Ok();
}

}  // namespace

Status CheckInputs(const OpSignature& op, int rank_size, const std::vector<TensorDesc>& inputs) {
  const size_t n = op.inputs.size();
  COLLOPS_CHECK_ARG(inputs.size() == n, ERROR_INVALID_IN_TENSOR_NUM, op.name, ": needs ", n,
                    n == 1 ? " input" : " inputs", ", got ", inputs.size());
  for (size_t i = 0; i < n; ++i)
    COLLOPS_RETURN_IF_ERROR(CheckNumDimsLimit(op, op.inputs[i], inputs[i]));
  for (size_t i = 0; i < n; ++i)
    COLLOPS_RETURN_IF_ERROR(CheckSize(op, op.inputs[i].name, inputs[i]));
  for (size_t i = 0; i < n; ++i) {
    COLLOPS_RETURN_IF_ERROR(CheckDType(op, op.inputs[i], inputs[i]));
    COLLOPS_RETURN_IF_ERROR(CheckFormat(op, op.inputs[i].name, inputs[i]));
  }
  COLLOPS_RETURN_IF_ERROR(CheckOneDType(op, inputs));
  for (size_t i = 0; i < n; ++i) COLLOPS_RETURN_IF_ERROR(CheckNumDims(op, op.inputs[i], inputs[i]));
  for (size_t i = 0; i < n; ++i) {
    COLLOPS_RETURN_IF_ERROR(CheckExtent(op, op.inputs[i], rank_size, inputs[i]));
  }
  return Ok();
}

Status CheckOutputSizes(const OpSignature& op, const std::vector<TensorDesc>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(CheckSize(op, op.outputs[i], outputs[i]));
  }
  return Ok();
}

Status CheckOutputs(const OpSignature& op, const std::vector<TensorDesc>& want,
                    const std::vector<TensorView>& outputs) {
  const size_t n = want.size();
  COLLOPS_CHECK_ARG(outputs.size() == n, ERROR_INVALID_IN_TENSOR_NUM, op.name, ": needs ", n,
                    n == 1 ? " output" : " outputs", ", got ", outputs.size());
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = outputs[i].desc.shape;
    COLLOPS_CHECK_ARG(shape.num_dims == want[i].shape.num_dims, op.num_dims_code, op.name, ": ",
                      op.outputs[i], " must have ", want[i].shape.num_dims, " dims, shape ",
                      ToString(want[i].shape), ", got ", shape.num_dims, " in shape ",
                      ToString(shape));
  }
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = outputs[i].desc.shape;
    COLLOPS_CHECK_ARG(shape == want[i].shape, ERROR_INVALID_TENSOR_DIM, op.name, ": ",
                      op.outputs[i], " must have shape ", ToString(want[i].shape), ", got ",
                      ToString(shape));
  }
  for (size_t i = 0; i < n; ++i) {
    const TensorDesc& got = outputs[i].desc;
    COLLOPS_CHECK_ARG(got.dtype == want[i].dtype, ERROR_INVALID_TENSOR_INI_MATCH, op.name, ": ",
                      op.outputs[i], " must be ", Name(want[i].dtype), " as ", op.inputs[0].name,
                      ", got ", Name(got.dtype));
    COLLOPS_RETURN_IF_ERROR(CheckFormat(op, op.outputs[i], got));
  }
  return Ok();
}

}  // namespace collops

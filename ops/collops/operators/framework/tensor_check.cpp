#include "collops/operators/framework/tensor_check.h"

#include <algorithm>
#include <cstring>
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
  COLLOPS_CHECK_ARG(desc.shape.num_dims <= kMaxDims, ERROR_INVALID_TENSOR_DIM, op.called(), ": ",
                    rule.name, " has ", desc.shape.num_dims, " dims, the limit is ", kMaxDims,
                    ": flatten some");
  COLLOPS_CHECK_ARG(desc.shape.num_dims > 0 || rule.num_dims != kAnyNumDims,
                    ERROR_INVALID_TENSOR_DIM, op.called(), ": ", rule.name,
                    " has 0 dims, it needs 1 to ", kMaxDims, ": reshape it to [1]");
  return Ok();
}

Status CheckSize(const OpSignature& op, const char* name, const TensorDesc& desc) {
  for (int i = 0; i < desc.shape.num_dims; ++i) {
    COLLOPS_CHECK_ARG(desc.shape[i] >= (i == 0 ? 0 : 1), ERROR_INVALID_TENSOR_SIZE, op.called(),
                      ": ", name, " has size ", desc.shape[i], " in dim ", i, " of ",
                      ToString(desc.shape),
                      desc.shape[i] < 0 ? ": a size is at least 0" : ": only dim 0 may be 0");
  }
  COLLOPS_CHECK_ARG(!IsTooLarge(desc), ERROR_INVALID_TENSOR_SIZE, op.called(), ": ", name,
                    " of shape ", ToString(desc.shape),
                    " is over the limit of 256 GB: split the call");
  return Ok();
}

bool IsMissing(const InputRule& rule, const TensorDesc& desc) {
  return rule.may_be_missing && desc.shape.num_dims == 1 && desc.shape[0] == 0;
}

Status CheckDType(const OpSignature& op, const InputRule& rule, const TensorDesc& desc) {
  if (IsMissing(rule, desc)) return Ok();
  if (Contains(rule.dtypes, desc.dtype)) return Ok();
  const char* got = NameOfType(desc);
  switch (rule.role) {
    case Role::kData:
    case Role::kInPlace:
    case Role::kRouting:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ", rule.name, " is ", got,
                   "; pass one of ", ToString(rule.dtypes));
    case Role::kCounts:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ", rule.name, " is ", got,
                   "; counts are elements as int64: convert it");
    case Role::kLength:
      return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ", rule.name,
                   " is only a length: pass an empty ", ToString(rule.dtypes), " tensor of ",
                   desc.shape[0], ", got ", got);
  }
  return Ok();
}

Status CheckFormat(const OpSignature& op, const char* name, const TensorDesc& desc) {
  COLLOPS_CHECK_ARG(desc.format == Format::kND, ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ",
                    name, " has format ", Name(desc.format), "; pass it as nd");
  return Ok();
}

Status CheckOneDType(const OpSignature& op, const std::vector<TensorDesc>& inputs) {
  for (size_t i = 1; i < inputs.size(); ++i) {
    const bool is_data = op.inputs[i].role == Role::kData;
    COLLOPS_CHECK_ARG(!op.one_dtype || !is_data || inputs[i].dtype == inputs[0].dtype,
                      ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ", op.inputs[i].name, " is ",
                      NameOfType(inputs[i]), " but ", op.inputs[0].name, " is ",
                      NameOfType(inputs[0]), ": convert one of them");
  }
  return Ok();
}

// Of the rows that fit longest, what the first input that does not fit may be instead.
Status CheckDTypeRows(const OpSignature& op, const std::vector<TensorDesc>& inputs) {
  if (op.dtype_rows.empty()) return Ok();
  size_t longest = 0;
  DTypeSet wanted = 0;
  for (const std::vector<DType>& row : op.dtype_rows) {
    size_t fitting = 0;
    while (fitting < row.size() &&
           (row[fitting] == DType::kUndefined || row[fitting] == inputs[fitting].dtype ||
            IsMissing(op.inputs[fitting], inputs[fitting]))) {
      ++fitting;
    }
    if (fitting == row.size()) return Ok();
    if (fitting > longest) wanted = 0;
    longest = std::max(longest, fitting);
    if (fitting == longest) wanted |= SetOf(row[fitting]);
  }
  std::string beside;
  for (size_t i = 0; i < longest; ++i) {
    beside += Concat(i == 0            ? " where "
                     : i + 1 < longest ? ", "
                                       : " and ",
                     op.inputs[i].name, " is ", NameOfType(inputs[i]));
  }
  return Error(ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ", op.inputs[longest].name, " is ",
               NameOfType(inputs[longest]), beside, "; pass one of ", ToString(wanted));
}

Status CheckNumDims(const OpSignature& op, const InputRule& rule, const TensorDesc& desc) {
  const int got = desc.shape.num_dims;
  const int most = std::max(rule.num_dims, rule.most_dims);
  if (rule.num_dims == kAnyNumDims || (got >= rule.num_dims && got <= most)) return Ok();
  const std::string range = most > rule.num_dims ? Concat(" or ", most) : "";
  return Error(op.num_dims_code, op.called(), ": ", rule.name, " must have ", rule.num_dims, range,
               most == 1 ? " dim" : " dims", ", got ", got, " in shape ", ToString(desc.shape));
}

Status CheckExtent(const OpSignature& op, const InputRule& rule, int rank_size,
                   const TensorDesc& desc) {
  if (rule.extent == Extent::kAny) return Ok();
  const int64_t want = rule.extent == Extent::kOne ? 1 : rank_size;
  COLLOPS_CHECK_ARG(desc.shape[0] == want, ERROR_INVALID_TENSOR_DIM, op.called(), ": ", rule.name,
                    " must have ", want, want == 1 ? " element" : " elements, one per rank",
                    ", got ", desc.shape[0]);
  return Ok();
}

const char* DeviceName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "CPU";
    case DeviceKind::kCuda:
      return "CUDA";
    case DeviceKind::kNpu:
      return "NPU";
    case DeviceKind::kOther:
      return "other";
    case DeviceKind::kMeta:
      return "meta";
  }
  return "unknown";
}

// `values`: how to make a tensor with memory.
Status MetaFault(const OpSignature& op, const char* name, const char* values) {
  return Error(ERROR_INVALID_TENSOR_ADDR, op.called(), ": ", name,
               " is a meta tensor, which has no values: ", values);
}

// Checks are inline, messages are not: every call checks, hardly any call fails.
Status DeviceFault(const OpSignature& op, const char* name, const Device& got, const Device& want) {
  if (got.kind == DeviceKind::kMeta) {
    const std::string device = ToString(Device{want.kind, std::max(want.index, 0)});
    const std::string make = Concat("torch.empty_like(tensor, device=\"", device, "\")");
    return MetaFault(op, name,
                     Concat("create a real one, e.g. by ", make, ", and fill it").c_str());
  }
  COLLOPS_CHECK_ARG(got.kind == want.kind, ERROR_INVALID_TENSOR_ADDR, op.called(), ": ", name,
                    " is on ", ToString(got), "; this backend moves ", DeviceName(want.kind),
                    " tensors: move it there or choose another backend");
  return Error(ERROR_INVALID_TENSOR_ADDR, op.called(), ": ", name, " is on ", ToString(got),
               ", but the communicator is on ", ToString(want),
               ": move it there, or choose the device before the operation is made");
}

bool HasPlainLayout(const TensorView& tensor) {
  return tensor.contiguous && !tensor.foreign_endian;
}

// A tensor of a call and what the messages need of it, in the order of inputs and outputs.
struct Argument {
  const char* name;
  const TensorView& tensor;
  int64_t bytes;
  const InputRule* rule;  // null: an output

  bool HasRole(Role role) const { return rule != nullptr && rule->role == role; }
  bool IsCounts() const { return HasRole(Role::kCounts) || HasRole(Role::kRouting); }
};

std::vector<Argument> ArgumentsOf(const OpSignature& op, const VariantPack& pack,
                                  const TensorBytes& bytes) {
  std::vector<Argument> arguments;
  for (size_t i = 0; i < pack.inputs.size(); ++i) {
    arguments.push_back({op.inputs[i].name, pack.inputs[i], bytes.inputs[i], &op.inputs[i]});
  }
  for (size_t o = 0; o < pack.outputs.size(); ++o) {
    arguments.push_back({op.outputs[o], pack.outputs[o], bytes.outputs[o], nullptr});
  }
  return arguments;
}

Status CheckCountsOnHost(const OpSignature& op, const Argument& argument) {
  const Device& where = argument.tensor.device;
  if (!argument.IsCounts() || where.kind == DeviceKind::kCpu) return Ok();
  if (where.kind == DeviceKind::kMeta) {
    return MetaFault(op, argument.name, "pass torch.tensor(counts)");
  }
  return Error(ERROR_INVALID_TENSOR_ADDR, op.called(), ": ", argument.name, " is on ",
               ToString(where), "; counts are host tensors: .cpu()");
}

// Checks that output `o` shares no memory with an argument before it. `first`: of the outputs.
Status CheckApart(const OpSignature& op, const std::vector<Argument>& arguments, size_t first,
                  size_t o) {
  const Argument& output = arguments[o];
  for (size_t i = 0; i < o; ++i) {
    const Argument& other = arguments[i];
    const bool is_itself = i == 0 && o == first && other.tensor.data == output.tensor.data;
    if (op.may_be_in_place && is_itself) continue;
    const bool share = other.tensor.device == output.tensor.device &&
                       Overlap(other.tensor.data, other.bytes, output.tensor.data, output.bytes);
    COLLOPS_CHECK_ARG(!share, ERROR_INVALID_TENSOR_ADDR, op.called(), ": ", output.name,
                      " overlaps ", other.name, " in memory: give it memory of its own");
  }
  return Ok();
}

Status CheckWritable(const OpSignature& op, const Argument& argument) {
  const bool is_changed = argument.rule == nullptr || argument.HasRole(Role::kInPlace);
  COLLOPS_CHECK_ARG(!is_changed || !argument.tensor.read_only, ERROR_INVALID_TENSOR_ADDR,
                    op.called(), ": ", argument.name, " is read-only",
                    argument.rule == nullptr ? "" : ", but the call changes it",
                    ": pass a writable one");
  return Ok();
}

Status CheckLayout(const OpSignature& op, const Argument& argument) {
  COLLOPS_CHECK_ARG(argument.tensor.contiguous, ERROR_INVALID_TENSOR_ADDR, op.called(), ": ",
                    argument.name,
                    " is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)",
                    argument.rule == nullptr ? "" : argument.rule->if_strided);
  COLLOPS_CHECK_ARG(!argument.tensor.foreign_endian, ERROR_INVALID_TENSOR_ADDR, op.called(), ": ",
                    argument.name,
                    " is not in this machine's byte order: .astype(dtype.newbyteorder(\"=\"))");
  return Ok();
}

Status CheckDevice(const OpSignature& op, const Argument& argument, const Device& device) {
  const bool is_elsewhere = argument.IsCounts() || argument.HasRole(Role::kLength);
  if (is_elsewhere || IsOn(device, argument.tensor.device)) return Ok();
  return DeviceFault(op, argument.name, argument.tensor.device, device);
}

// Whether no check of CheckMemory() can fail, in one pass over the tensors, because every call asks
// this. May be false of a call that passes them: one in place.
bool PassesAtOnce(const OpSignature& op, const VariantPack& pack, const TensorBytes& bytes,
                  const Device& device) {
  const size_t num_outputs = pack.outputs.size();
  bool passes = true;
  for (size_t i = 0; i < pack.inputs.size(); ++i) {
    const TensorView& input = pack.inputs[i];
    const Role role = op.inputs[i].role;
    if (role == Role::kCounts || role == Role::kRouting) {
      passes &= input.device.kind == DeviceKind::kCpu;
    } else if (role != Role::kLength) {
      passes &= IsOn(device, input.device);
    }
    passes &= HasPlainLayout(input) && (role != Role::kInPlace || !input.read_only);
    for (size_t o = 0; o < num_outputs; ++o) {
      passes &= !Overlap(input.data, bytes.inputs[i], pack.outputs[o].data, bytes.outputs[o]);
    }
  }
  for (size_t o = 0; o < num_outputs; ++o) {
    const TensorView& output = pack.outputs[o];
    passes &= IsOn(device, output.device) && HasPlainLayout(output) && !output.read_only;
    for (size_t other = 0; other < o; ++other) {
      passes &=
          !Overlap(pack.outputs[other].data, bytes.outputs[other], output.data, bytes.outputs[o]);
    }
  }
  return passes;
}

}  // namespace

Status CheckInputs(const OpSignature& op, int rank_size, const std::vector<TensorDesc>& inputs) {
  const size_t n = op.inputs.size();
  COLLOPS_CHECK_ARG(inputs.size() == n, ERROR_INVALID_IN_TENSOR_NUM, op.called(), ": needs ", n,
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
  COLLOPS_RETURN_IF_ERROR(CheckDTypeRows(op, inputs));
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
  COLLOPS_CHECK_ARG(outputs.size() == n, ERROR_INVALID_IN_TENSOR_NUM, op.called(), ": needs ", n,
                    n == 1 ? " output" : " outputs", ", got ", outputs.size());
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = outputs[i].desc.shape;
    COLLOPS_CHECK_ARG(shape.num_dims == want[i].shape.num_dims, op.num_dims_code, op.called(), ": ",
                      op.outputs[i], " must have ", want[i].shape.num_dims, " dims, shape ",
                      ToString(want[i].shape), ", got ", shape.num_dims, " in shape ",
                      ToString(shape));
  }
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = outputs[i].desc.shape;
    COLLOPS_CHECK_ARG(shape == want[i].shape, ERROR_INVALID_TENSOR_DIM, op.called(), ": ",
                      op.outputs[i], " must have shape ", ToString(want[i].shape), ", got ",
                      ToString(shape));
  }
  for (size_t i = 0; i < n; ++i) {
    const TensorDesc& got = outputs[i].desc;
    COLLOPS_CHECK_ARG(got.dtype == want[i].dtype, ERROR_INVALID_TENSOR_INI_MATCH, op.called(), ": ",
                      op.outputs[i], " must be ", NameOfType(want[i]),
                      op.dtype_rows.empty() ? Concat(" as ", op.inputs[0].name) : "", ", got ",
                      NameOfType(got));
    COLLOPS_RETURN_IF_ERROR(CheckFormat(op, op.outputs[i], got));
  }
  return Ok();
}

Counts ReadCounts(const OpSignature& op, const std::vector<TensorView>& inputs) {
  Counts counts(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (op.inputs[i].role != Role::kCounts || !IsReadable(inputs[i])) continue;
    counts[i].resize(static_cast<size_t>(Numel(inputs[i].desc.shape)));
    // memcpy: the counts' address may be unaligned.
    std::memcpy(counts[i].data(), inputs[i].data, counts[i].size() * sizeof(int64_t));
  }
  return counts;
}

Status CheckHostData(const OpSignature& op, const std::vector<TensorView>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_null = inputs[i].data == nullptr && inputs[i].device.kind == DeviceKind::kCpu;
    COLLOPS_CHECK_ARG(op.inputs[i].role != Role::kCounts || !is_null, ERROR_INVALID_PARAM,
                      op.called(), ": ", op.inputs[i].name,
                      " has no host data: its values are needed to plan the call");
  }
  return Ok();
}

Status CheckMemory(const OpSignature& op, const VariantPack& pack, const TensorBytes& bytes,
                   const Device& device) {
  if (PassesAtOnce(op, pack, bytes, device)) return Ok();
  const std::vector<Argument> arguments = ArgumentsOf(op, pack, bytes);
  const size_t first_output = pack.inputs.size();
  for (const Argument& argument : arguments) {
    COLLOPS_RETURN_IF_ERROR(CheckCountsOnHost(op, argument));
  }
  for (size_t o = first_output; o < arguments.size(); ++o) {
    COLLOPS_RETURN_IF_ERROR(CheckApart(op, arguments, first_output, o));
  }
  for (const Argument& argument : arguments) COLLOPS_RETURN_IF_ERROR(CheckWritable(op, argument));
  for (const Argument& argument : arguments) COLLOPS_RETURN_IF_ERROR(CheckLayout(op, argument));
  for (const Argument& argument : arguments) {
    COLLOPS_RETURN_IF_ERROR(CheckDevice(op, argument, device));
  }
  return Ok();
}

Status CheckAddresses(const OpSignature& op, const VariantPack& pack, const TensorBytes& bytes) {
  const auto check = [&op](const char* name, const TensorView& tensor, int64_t num_bytes) {
    COLLOPS_CHECK_ARG(tensor.data != nullptr || num_bytes == 0, ERROR_INVALID_TENSOR_ADDR,
                      op.called(), ": ", name, " of shape ", ToString(tensor.desc.shape),
                      " has no address");
    return Ok();
  };
  for (size_t i = 0; i < pack.inputs.size(); ++i) {
    COLLOPS_RETURN_IF_ERROR(check(op.inputs[i].name, pack.inputs[i], bytes.inputs[i]));
  }
  for (size_t o = 0; o < pack.outputs.size(); ++o) {
    COLLOPS_RETURN_IF_ERROR(check(op.outputs[o], pack.outputs[o], bytes.outputs[o]));
  }
  return Ok();
}

}  // namespace collops

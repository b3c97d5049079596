#include "operators/memory_check.h"

#include <cstdint>
#include <cstring>

namespace collops {
namespace {

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
  }
  return "unknown";
}

// Faults are looked for inline and worded here: every call looks, hardly one finds any.
Status DeviceFault(const Signature& op, const char* name, const Device& got, DeviceKind want) {
  return Error(ERROR_INVALID_TENSOR_ADDR, op.name, ": ", name, " is on ", ToString(got),
               "; this backend moves ", DeviceName(want),
               " tensors: move it there or choose another backend");
}

bool HasPlainLayout(const TensorView& tensor) {
  return tensor.contiguous && !tensor.foreign_endian;
}

Status LayoutFault(const Signature& op, const char* name, const TensorView& tensor) {
  CHECK_ARG(tensor.contiguous, ERROR_INVALID_TENSOR_ADDR, op.name, ": ", name,
            " is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)");
  return Error(ERROR_INVALID_TENSOR_ADDR, op.name, ": ", name,
               " is not in this machine's byte order: .astype(dtype.newbyteorder(\"=\"))");
}

}  // namespace

bool IsReadable(const TensorView& counts) {
  return counts.device.kind == DeviceKind::kCpu && counts.data != nullptr && counts.contiguous &&
         !counts.foreign_endian;
}

Counts ReadCounts(const Signature& op, const std::vector<TensorView>& inputs) {
  Counts counts(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (op.inputs[i].role != Role::kCounts || !IsReadable(inputs[i])) continue;
    counts[i].resize(static_cast<size_t>(Numel(inputs[i].desc.shape)));
    // Their address may be unaligned.
    std::memcpy(counts[i].data(), inputs[i].data, counts[i].size() * sizeof(int64_t));
  }
  return counts;
}

Status CheckHostData(const Signature& op, const std::vector<TensorView>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_null = inputs[i].data == nullptr && inputs[i].device.kind == DeviceKind::kCpu;
    CHECK_ARG(op.inputs[i].role != Role::kCounts || !is_null, ERROR_INVALID_PARAM, op.name, ": ",
              op.inputs[i].name, " has no host data: its values are needed to plan the call");
  }
  return Ok();
}

Status CheckMemory(const Signature& op, const VariantPack& pack, const TensorBytes& bytes,
                   DeviceKind device) {
  const TensorView& output = pack.outputs[0];
  const size_t n = pack.inputs.size();
  for (size_t i = 0; i < n; ++i) {
    const Device& where = pack.inputs[i].device;
    CHECK_ARG(op.inputs[i].role != Role::kCounts || where.kind == DeviceKind::kCpu,
              ERROR_INVALID_TENSOR_ADDR, op.name, ": ", op.inputs[i].name, " is on ",
              ToString(where), "; counts are host tensors: .cpu()");
  }
  for (size_t i = 0; i < n; ++i) {
    const TensorView& input = pack.inputs[i];
    CHECK_ARG(!(input.device == output.device) ||
                  !Overlap(input.data, bytes.inputs[i], output.data, bytes.output),
              ERROR_INVALID_TENSOR_ADDR, op.name, ": the output overlaps ", op.inputs[i].name,
              " in memory: give it memory of its own");
  }
  CHECK_ARG(!output.read_only, ERROR_INVALID_TENSOR_ADDR, op.name,
            ": the output is read-only: pass a writable one");
  for (size_t i = 0; i < n; ++i) {
    if (!HasPlainLayout(pack.inputs[i])) {
      return LayoutFault(op, op.inputs[i].name, pack.inputs[i]);
    }
  }
  if (!HasPlainLayout(output)) return LayoutFault(op, "the output", output);
  for (size_t i = 0; i < n; ++i) {
    const Device& where = pack.inputs[i].device;
    if (op.inputs[i].role == Role::kData && where.kind != device) {
      return DeviceFault(op, op.inputs[i].name, where, device);
    }
  }
  if (output.device.kind != device) return DeviceFault(op, "the output", output.device, device);
  return Ok();
}

Status CheckAddresses(const Signature& op, const VariantPack& pack, const TensorBytes& bytes) {
  for (size_t i = 0; i < pack.inputs.size(); ++i) {
    CHECK_ARG(pack.inputs[i].data != nullptr || bytes.inputs[i] == 0, ERROR_INVALID_TENSOR_ADDR,
              op.name, ": ", op.inputs[i].name, " of shape ", ToString(pack.inputs[i].desc.shape),
              " has no address");
  }
  CHECK_ARG(pack.outputs[0].data != nullptr || bytes.output == 0, ERROR_INVALID_TENSOR_ADDR,
            op.name, ": the output of shape ", ToString(pack.outputs[0].desc.shape),
            " has no address");
  return Ok();
}

}  // namespace collops

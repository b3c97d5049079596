// Matrix products of a simulated libopapi, from the published signatures.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "collops/kernels/cuda/bodies/number.h"
#include "tensor.h"

using collops::cuda::BFloat16;
using collops::cuda::Float16;
using collops_sim::FirstPhase;
using collops_sim::SocName;
using collops_sim::Tensor;

namespace {

constexpr uint64_t kWorkspaceBytes = 4096;
constexpr uint64_t kWorkspaceBytesPerRow = 64;

enum CubeMathType { kKeepType, kAllowDownPrecision, kUseFloat16, kUseHFloat32 };

int Promoted(const Tensor& left, const Tensor& right) {
  return left.type == right.type ? left.type : static_cast<int>(collops_sim::kAclFloat);
}

// What types of 16 bits give in float32. COLLOPS_SIM_MATMUL_FLOAT_OUT: "right" as in CANN 8.5,
// float32 sums by both functions; "rounded", aclnnMatmul rounds the sums to the operands' type, and
// aclnnMm takes no such `out`; "refused", neither does. By default as before CANN 8.5: aclnnMatmul
// rounds, and aclnnMm is right for float16 and refuses bfloat16.
enum class FloatOut { kRight, kRounded, kRefused };
FloatOut FloatOutOf(bool is_mm, int type) {
  const char* const text = std::getenv("COLLOPS_SIM_MATMUL_FLOAT_OUT");
  const std::string setting = text == nullptr ? "" : text;
  if (setting == "right") return FloatOut::kRight;
  if (setting == "refused" || (setting == "rounded" && is_mm)) return FloatOut::kRefused;
  if (!is_mm) return FloatOut::kRounded;
  return type == collops_sim::kAclFloat16 ? FloatOut::kRight : FloatOut::kRefused;
}

// Atlas training, the first Ascend910B among it, and the 300I Duo.
bool IsOldDevice() {
  const std::string soc = SocName();
  return soc == "Ascend910B" || soc.rfind("Ascend910A", 0) == 0 || soc.rfind("Ascend310P", 0) == 0;
}

// What float16 or bfloat16 makes of it. Old devices have no infinity by default.
float RoundedTo(int type, float value) {
  constexpr float kMostFloat16 = 65504.0F;
  if (type == collops_sim::kAclFloat) return value;
  if (type == collops_sim::kAclBFloat16) return BFloat16::Widen(BFloat16::Narrow(value));
  if (IsOldDevice()) value = std::clamp(value, -kMostFloat16, kMostFloat16);
  return Float16::Widen(Float16::Narrow(value));
}

// To 10 bits of mantissa, nearest even.
float RoundedToHFloat32(float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  if ((word & 0x7F800000) != 0x7F800000) word = (word + 0xFFF + (word >> 13 & 1)) & ~0x1FFFU;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

// What the cube unit works with.
std::vector<float> Operand(const Tensor& tensor, int math) {
  std::vector<float> values = tensor.Read();
  if (tensor.type != collops_sim::kAclFloat) return values;
  for (float& value : values) {
    if (math == kUseFloat16) value = Float16::Widen(Float16::Narrow(value));
    if (math == kAllowDownPrecision || math == kUseHFloat32) value = RoundedToHFloat32(value);
  }
  return values;
}

// Adds up in float32, and rounds once; before that to the operands' type, where `rounds`. One
// product alone is made by the vector unit, in the operands' type.
void Multiply(const Tensor& left, const Tensor& right, const Tensor& out, int math, bool rounds) {
  const auto rows = static_cast<size_t>(left.dims[0]);
  const auto depth = static_cast<size_t>(left.dims[1]);
  const auto columns = static_cast<size_t>(right.dims[1]);
  const std::vector<float> a = Operand(left, math);
  const std::vector<float> b = Operand(right, math);
  std::vector<float> c(rows * columns, 0.0F);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t k = 0; k < depth; ++k) {
      const float factor = a[i * depth + k];
      const float* const from = b.data() + k * columns;
      float* const to = c.data() + i * columns;
      for (size_t j = 0; j < columns; ++j) to[j] += factor * from[j];
    }
  }
  if (rounds || depth == 1) {
    for (float& value : c) value = RoundedTo(Promoted(left, right), value);
  }
  out.Write(c);
}

bool NeedShapes(FirstPhase& phase, const Tensor& left, const Tensor& right, const Tensor& out) {
  if (left.dims.size() != 2 || right.dims.size() != 2 || out.dims.size() != 2) {
    return phase.Refuse(collops_sim::kAclnnInvalid, "only matrices are simulated");
  }
  const bool fits =
      left.dims[1] == right.dims[0] && out.dims[0] == left.dims[0] && out.dims[1] == right.dims[1];
  return fits || phase.Refuse(collops_sim::kAclnnInvalid, "the shapes do not go together");
}

bool NeedTypes(FirstPhase& phase, const Tensor& left, const Tensor& right, const Tensor& out,
               int math, FloatOut float_out) {
  using namespace collops_sim;
  const int promoted = Promoted(left, right);
  const bool is_old = IsOldDevice();
  if (is_old && (left.type == kAclBFloat16 || right.type == kAclBFloat16)) {
    return phase.Refuse(kAclnnInvalid, "there is no bfloat16 on this device");
  }
  if (out.type != promoted && !(out.type == kAclFloat && float_out != FloatOut::kRefused)) {
    return phase.Refuse(kAclnnInvalid, "out is not of the promoted data type");
  }
  if (math < kKeepType || math > kUseHFloat32) {
    return phase.Refuse(kAclnnInvalid, "there is no such cubeMathType");
  }
  if (math == kUseHFloat32 && promoted != kAclFloat) {
    return phase.Refuse(kAclnnInvalid, "cubeMathType 3 is for float32 only");
  }
  if (math == kUseFloat16 && (left.type == kAclBFloat16 || right.type == kAclBFloat16)) {
    return phase.Refuse(kAclnnInvalid, "cubeMathType 2 is not for bfloat16");
  }
  if (math == kKeepType && is_old && promoted == kAclFloat) {
    return phase.Refuse(kAclnnInvalid, "cubeMathType 0 is not for float32 on this device");
  }
  return true;
}

int Prepare(const char* function, const void* self, const void* mat2, const void* result,
            int8_t math, uint64_t* size, void** executor) {
  FirstPhase phase(function);
  const Tensor* const left = phase.Need("self", self);
  const Tensor* const right = phase.Need("mat2", mat2);
  const Tensor* const out = phase.Need("out", result);
  if (phase.code() != 0) return phase.code();
  const FloatOut float_out =
      FloatOutOf(std::strcmp(function, "aclnnMm") == 0, Promoted(*left, *right));
  if (!NeedShapes(phase, *left, *right, *out) ||
      !NeedTypes(phase, *left, *right, *out, math, float_out)) {
    return phase.code();
  }
  const bool rounds = float_out == FloatOut::kRounded;
  const uint64_t bytes =
      kWorkspaceBytes + kWorkspaceBytesPerRow * static_cast<uint64_t>(left->dims[0]);
  return phase.Finish(
      [a = *left, b = *right, c = *out, math, rounds] { Multiply(a, b, c, math, rounds); }, bytes,
      size, executor);
}

}  // namespace

extern "C" {

int aclnnMatmulGetWorkspaceSize(const void* self, const void* mat2, const void* out, int8_t math,
                                uint64_t* size, void** executor) {
  return Prepare("aclnnMatmul", self, mat2, out, math, size, executor);
}
int aclnnMatmul(void* workspace, uint64_t size, void* executor, void* stream) {
  return collops_sim::Launch("aclnnMatmul", workspace, size, executor, stream);
}

// Of int8 into int32 alone, as CANN's documents have it: no scale counts, but x2's is there.
int aclnnQuantMatmulV5GetWorkspaceSize(const void* x1, const void* x2, const void* x1_scale,
                                       const void* x2_scale, const void* y_scale,
                                       const void* x1_offset, const void* x2_offset,
                                       const void* y_offset, const void* bias, bool transpose_x1,
                                       bool transpose_x2, int64_t group_size, const void* result,
                                       uint64_t* size, void** executor) {
  using namespace collops_sim;
  constexpr int64_t kMostLast = 65535;
  FirstPhase phase("aclnnQuantMatmulV5");
  const Tensor* const left = phase.NeedReal("x1", x1);
  const Tensor* const right = phase.NeedReal("x2", x2);
  const Tensor* const out = phase.NeedReal("out", result);
  const Tensor* const scale = phase.NeedReal("x2Scale", x2_scale);
  if (phase.code() != 0) return phase.code();
  const bool is_plain = x1_scale == nullptr && y_scale == nullptr && x1_offset == nullptr &&
                        x2_offset == nullptr && y_offset == nullptr && bias == nullptr &&
                        group_size == 0 && !transpose_x1;
  const bool are_types = left->type == kAclInt8 && right->type == kAclInt8 &&
                         out->type == kAclInt32 && scale->type == kAclFloat;
  const auto has_no_gaps = [](const Tensor& tensor) {
    return tensor.dims.size() == 2 && tensor.strides[1] == 1 && tensor.strides[0] == tensor.dims[1];
  };
  if (!is_plain || !are_types || !has_no_gaps(*left) || !has_no_gaps(*right) ||
      !has_no_gaps(*out) || left->dims[1] > kMostLast || right->dims[1] > kMostLast) {
    phase.Refuse(kAclnnInvalid, "the types, gaps or sizes are not supported");
    return phase.code();
  }
  const auto rows = static_cast<size_t>(left->dims[0]);
  const auto depth = static_cast<size_t>(left->dims[1]);
  const auto columns = static_cast<size_t>(right->dims[transpose_x2 ? 0 : 1]);
  const bool fits = right->dims[transpose_x2 ? 1 : 0] == left->dims[1] &&
                    out->dims[0] == left->dims[0] && static_cast<size_t>(out->dims[1]) == columns;
  if (!fits || rows == 0) {
    phase.Refuse(kAclnnInvalid, "the shapes do not go together");
    return phase.code();
  }
  const auto work = [a = *left, b = *right, c = *out, rows, depth, columns, transpose_x2] {
    const auto* const x = reinterpret_cast<const int8_t*>(a.data);
    const auto* const w = reinterpret_cast<const int8_t*>(b.data);
    auto* const y = reinterpret_cast<uint32_t*>(c.data);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < columns; ++j) {
        uint32_t sum = 0;
        for (size_t k = 0; k < depth; ++k) {
          const int8_t factor = transpose_x2 ? w[j * depth + k] : w[k * columns + j];
          sum += static_cast<uint32_t>(x[i * depth + k] * factor);
        }
        y[i * columns + j] = sum;
      }
    }
  };
  return phase.Finish(work, kWorkspaceBytes, size, executor);
}
int aclnnQuantMatmulV5(void* workspace, uint64_t size, void* executor, void* stream) {
  return collops_sim::Launch("aclnnQuantMatmulV5", workspace, size, executor, stream);
}

int aclnnMmGetWorkspaceSize(const void* self, const void* mat2, const void* out, int8_t math,
                            uint64_t* size, void** executor) {
  return Prepare("aclnnMm", self, mat2, out, math, size, executor);
}
int aclnnMm(void* workspace, uint64_t size, void* executor, void* stream) {
  return collops_sim::Launch("aclnnMm", workspace, size, executor, stream);
}

}  // extern "C"

#pragma once

#include <cstdint>
#include <vector>

#include "collops/core/dtype.h"
#include "collops/core/status.h"
#include "collops/core/tensor.h"

namespace collops {

// A set of element types, one bit per aclDataType number.
using DTypeSet = uint32_t;

template <typename... DTypes>
constexpr DTypeSet SetOf(DTypes... dtypes) {
  return ((DTypeSet{1} << static_cast<int>(dtypes)) | ...);
}

// The element types of operators that move elements without reducing them.
constexpr DTypeSet kMovable =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64, DType::kBool);

// The element types that can be reduced.
constexpr DTypeSet kReducible =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64);

// What an input is for: data that moves, data that the call changes, counts on the host whose
// values are read, counts on the host that each call reads anew because they are no part of its
// plan, or a tensor of which only the length is read.
enum class Role { kData, kInPlace, kCounts, kRouting, kLength };

// The required length of a tensor of one dimension.
enum class Extent { kAny, kOne, kRankSize };

constexpr int kAnyNumDims = 0;

// What an operator requires of one input.
struct InputRule {
  const char* name;
  Role role;
  DTypeSet dtypes;
  int num_dims;  // required, or kAnyNumDims: 1 to kMaxDims
  Extent extent;
  int most_dims = 0;            // if not 0: num_dims is the least, this the most
  const char* if_strided = "";  // what the message adds of a tensor that is not contiguous
  bool may_be_missing = false;  // a tensor [0], of any dtype, says so
};

// What the checks know about an operator. The outputs have the dtype of the first input.
struct OpSignature {
  const char* name;  // in messages and for the other ranks; lives as long as the process
  std::vector<InputRule> inputs;
  std::vector<const char*> outputs = {"the output"};  // names for messages
  bool one_dtype = false;                             // all data must have the first input's dtype
  // Or: dtypes that go together, one for each input; kUndefined is any.
  std::vector<std::vector<DType>> dtype_rows = {};
  ErrorCode num_dims_code = ERROR_INVALID_TENSOR_DIM_NUM;
  bool may_be_in_place = false;  // the first output may be the first input itself
  const char* method = nullptr;  // messages name the plain level's method, if it is not null

  const char* called() const { return method == nullptr ? name : method; }
};

// This rank, and the number of ranks.
struct RankPlace {
  int rank;
  int rank_size;
};

// Bytes of each tensor of a call.
struct TensorBytes {
  std::vector<int64_t> inputs;
  std::vector<int64_t> outputs;
};

// The values of the count tensors by index of the input; empty for one that cannot be read.
using Counts = std::vector<std::vector<int64_t>>;

// The checks of InferShape that are the same for all operators, in the documented order.
Status CheckInputs(const OpSignature& signature, int rank_size,
                   const std::vector<TensorDesc>& inputs);

// The output shapes that follow from the inputs may be too large.
Status CheckOutputSizes(const OpSignature& signature, const std::vector<TensorDesc>& outputs);

// Checks that the call's outputs are the tensors in `want`.
Status CheckOutputs(const OpSignature& signature, const std::vector<TensorDesc>& want,
                    const std::vector<TensorView>& outputs);

// Whether the host may read the counts in place; the checks below refuse counts that cannot be
// read.
inline bool IsReadable(const TensorView& counts) {
  return counts.device.kind == DeviceKind::kCpu && counts.data != nullptr && counts.contiguous &&
         !counts.foreign_endian;
}
Counts ReadCounts(const OpSignature& signature, const std::vector<TensorView>& inputs);
Status CheckHostData(const OpSignature& signature, const std::vector<TensorView>& inputs);

// Checks devices and contiguity, and that outputs overlap no input and no other output. Null
// addresses pass. `device` is the communicator's.
Status CheckMemory(const OpSignature& signature, const VariantPack& pack, const TensorBytes& bytes,
                   const Device& device);

// Checks that every tensor that is not empty has an address.
Status CheckAddresses(const OpSignature& signature, const VariantPack& pack,
                      const TensorBytes& bytes);

}  // namespace collops

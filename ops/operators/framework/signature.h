#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

namespace collops {

// A set of element types, one bit per aclDataType number.
using DTypeSet = uint32_t;

template <typename... DTypes>
constexpr DTypeSet SetOf(DTypes... dtypes) {
  return ((DTypeSet{1} << static_cast<int>(dtypes)) | ...);
}

// What an input is for: data that moves, data that the call changes, counts on the host that are
// read, or only a length.
enum class Role { kData, kInPlace, kCounts, kLength };

// The length that a tensor of one dimension must have.
enum class Extent { kAny, kOne, kRankSize };

constexpr int kAnyNumDims = 0;

// What an operator asks of one input.
struct InputRule {
  const char* name;
  Role role;
  DTypeSet dtypes;
  int num_dims;  // or kAnyNumDims: 1 to kMaxDims
  Extent extent;
  int most_dims = 0;  // where num_dims is only the least: the most
};

// What the checks know of an operator; the outputs' dtype is the first input's.
struct Signature {
  const char* name;  // by which the ranks know the call: a text that lives as long as the process
  std::vector<InputRule> inputs;
  std::vector<const char*> outputs = {"the output"};  // as messages call them
  bool one_dtype = false;                             // every input has the first one's
  ErrorCode num_dims_code = ERROR_INVALID_TENSOR_DIM_NUM;
  bool may_be_in_place = false;  // the first output may be the first input itself
};

// Which rank asks, of how many.
struct RankPlace {
  int rank;
  int rank_size;
};

// Bytes of each tensor of a call.
struct TensorBytes {
  std::vector<int64_t> inputs;
  std::vector<int64_t> outputs;
};

// The values of the count tensors by position of the input; empty for one that cannot be read.
using Counts = std::vector<std::vector<int64_t>>;

}  // namespace collops

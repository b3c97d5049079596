#pragma once

#include <cstdint>

namespace [[gnu::visibility("default")]] collops {

// Element types. The numbers are aclDataType's, so they have the same meaning in JSON and on NPUs.
enum class DType : int32_t {
  kUndefined = -1,
  kFloat32 = 0,
  kFloat16 = 1,
  kInt8 = 2,
  kInt32 = 3,
  kUInt8 = 4,
  kInt16 = 6,
  kUInt16 = 7,
  kUInt32 = 8,
  kInt64 = 9,
  kUInt64 = 10,
  kFloat64 = 11,
  kBool = 12,
  kComplex64 = 16,
  kComplex128 = 17,
  kBFloat16 = 27,
  kComplex32 = 33,
};

// Memory formats. The numbers are aclFormat's; the operators support kND only.
enum class Format : int32_t {
  kUndefined = -1,
  kNCHW = 0,
  kNHWC = 1,
  kND = 2,
  kNC1HWC0 = 3,
  kFractalZ = 4,
  kHWCN = 16,
  kNDHWC = 27,
  kFractalNZ = 29,
  kNCDHW = 30,
  kNDC1HWC0 = 32,
};

// Reductions. The struct field `reduceType` can be "sum", "max" or "min"; the plain level has all.
enum class ReduceOp : int32_t {
  kSum = 0,
  kProd = 1,
  kMax = 2,
  kMin = 3,
  kAvg = 4,
  kBitAnd = 5,
  kBitOr = 6,
  kBitXor = 7,
};

// Bytes of one element; 0 for kUndefined.
int64_t SizeOf(DType dtype);

// numpy's name of the type ("float32", "bfloat16", ...); "undefined" for kUndefined.
const char* Name(DType dtype);

// The format's name in lower case ("nd", "nhwc", ...).
const char* Name(Format format);

// "sum", "prod", "max", "min", "avg", "band", "bor" or "bxor".
const char* Name(ReduceOp op);

// The inverse of Name(); false, and the result unchanged, if the name is unknown.
bool ParseDType(const char* name, DType* dtype);
bool ParseFormat(const char* name, Format* format);
bool ParseReduceOp(const char* name, ReduceOp* op);

bool IsFloating(DType dtype);
bool IsComplex(DType dtype);

// The type as whose elements a reduction reads and writes elements of `dtype`: the two real numbers
// of a complex one, the bytes 0 and 1 of truth values; of all other types the type itself.
DType ReducedAs(DType dtype);
// How many of those one element of `dtype` has.
inline int PartsOf(DType dtype) {
  return IsComplex(dtype) ? 2 : 1;
}

// Whether the reduction works on the bits of integers.
bool IsBitwise(ReduceOp op);

}  // namespace collops

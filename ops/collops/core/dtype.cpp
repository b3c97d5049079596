#include "collops/core/dtype.h"

#include <cstring>
#include <iterator>

namespace collops {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  int64_t bytes;
};

constexpr DTypeRow kDTypes[] = {
    {DType::kUndefined, "undefined", 0},
    {DType::kFloat32, "float32", 4},
    {DType::kFloat16, "float16", 2},
    {DType::kInt8, "int8", 1},
    {DType::kInt32, "int32", 4},
    {DType::kUInt8, "uint8", 1},
    {DType::kInt16, "int16", 2},
    {DType::kUInt16, "uint16", 2},
    {DType::kUInt32, "uint32", 4},
    {DType::kInt64, "int64", 8},
    {DType::kUInt64, "uint64", 8},
    {DType::kFloat64, "float64", 8},
    {DType::kBool, "bool", 1},
    {DType::kComplex64, "complex64", 8},
    {DType::kComplex128, "complex128", 16},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kComplex32, "complex32", 4},
};

struct FormatRow {
  Format format;
  const char* name;
};

constexpr FormatRow kFormats[] = {
    {Format::kUndefined, "undefined"},
    {Format::kNCHW, "nchw"},
    {Format::kNHWC, "nhwc"},
    {Format::kND, "nd"},
    {Format::kNC1HWC0, "nc1hwc0"},
    {Format::kFractalZ, "fractal_z"},
    {Format::kHWCN, "hwcn"},
    {Format::kNDHWC, "ndhwc"},
    {Format::kFractalNZ, "fractal_nz"},
    {Format::kNCDHW, "ncdhw"},
    {Format::kNDC1HWC0, "ndc1hwc0"},
};

constexpr const char* kReduceOps[] = {"sum", "prod", "max", "min", "avg", "band", "bor", "bxor"};

const DTypeRow& Row(DType dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.dtype == dtype) return row;
  }
  return kDTypes[0];
}

}  // namespace

int64_t SizeOf(DType dtype) {
  return Row(dtype).bytes;
}

const char* Name(DType dtype) {
  return Row(dtype).name;
}

const char* Name(Format format) {
  for (const FormatRow& row : kFormats) {
    if (row.format == format) return row.name;
  }
  return "undefined";
}

const char* Name(ReduceOp op) {
  const auto number = static_cast<size_t>(op);
  return number < std::size(kReduceOps) ? kReduceOps[number] : "undefined";
}

bool ParseDType(const char* name, DType* dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (std::strcmp(row.name, name) == 0) {
      *dtype = row.dtype;
      return true;
    }
  }
  return false;
}

bool ParseFormat(const char* name, Format* format) {
  for (const FormatRow& row : kFormats) {
    if (std::strcmp(row.name, name) == 0) {
      *format = row.format;
      return true;
    }
  }
  return false;
}

bool ParseReduceOp(const char* name, ReduceOp* op) {
  for (size_t i = 0; i < std::size(kReduceOps); ++i) {
    if (std::strcmp(kReduceOps[i], name) == 0) {
      *op = static_cast<ReduceOp>(i);
      return true;
    }
  }
  return false;
}

bool IsFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

bool IsComplex(DType dtype) {
  return dtype == DType::kComplex32 || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

DType ReducedAs(DType dtype) {
  if (dtype == DType::kBool) return DType::kInt8;
  if (dtype == DType::kComplex32) return DType::kFloat16;
  if (dtype == DType::kComplex64) return DType::kFloat32;
  return dtype == DType::kComplex128 ? DType::kFloat64 : dtype;
}

bool IsBitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

}  // namespace collops

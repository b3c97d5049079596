#include "comm/backends/hccl/types.h"

namespace collops::hccl {
namespace {

struct Row {
  DType dtype;
  DataType type;
  bool moves;  // HcclAllGatherV documents this type
};

// HcclReduceScatterV documents all of these types.
constexpr Row kTypes[] = {
    {DType::kInt8, DataType::kInt8, true},       {DType::kInt16, DataType::kInt16, false},
    {DType::kInt32, DataType::kInt32, true},     {DType::kFloat16, DataType::kFloat16, true},
    {DType::kFloat32, DataType::kFloat32, true}, {DType::kBFloat16, DataType::kBFloat16, true},
};

const Row* Find(DType dtype) {
  for (const Row& row : kTypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

Carriage CarriageOf(DType dtype) {
  const Row* row = Find(dtype);
  if (row != nullptr && row->moves) return {row->type, 1};
  return {DataType::kInt8, SizeOf(dtype)};
}

Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  const Row* row = Find(dtype);
  CHECK_ARG(row != nullptr, ERROR_UNSUPPORTED, "backend hccl: HCCL does not reduce ",
            collops::Name(dtype), "; it takes int8, int16, int32, float16, float32 and bfloat16");
  *type = row->type;
  switch (op) {
    case ReduceOp::kSum:
      *reduction = Reduction::kSum;
      return Ok();
    case ReduceOp::kMax:
      *reduction = Reduction::kMax;
      return Ok();
    case ReduceOp::kMin:
      *reduction = Reduction::kMin;
      return Ok();
    case ReduceOp::kProd:
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return Error(ERROR_UNSUPPORTED, "backend hccl: HCCL does not scatter the ", collops::Name(op),
               "; it takes sum, max and min");
}

}  // namespace collops::hccl

#include "collops/comm/backends/hccl/library/types.h"

namespace collops::hccl {
namespace {

struct Row {
  DType dtype;
  DataType type;
  bool gathers;     // HcclAllGatherV documents it
  bool reduces_v;   // HcclReduceScatterV documents it
  bool reduces;     // HcclAllReduce, HcclReduceScatter and HcclReduce document it
  bool multiplies;  // with the reduction prod
};

// As documented for Atlas A2. The other calls that move data document all of these types.
constexpr Row kTypes[] = {
    {DType::kInt8, DataType::kInt8, true, true, true, true},
    {DType::kInt16, DataType::kInt16, false, true, true, false},
    {DType::kInt32, DataType::kInt32, true, true, true, true},
    {DType::kInt64, DataType::kInt64, false, false, true, true},
    {DType::kUInt8, DataType::kUInt8, false, false, false, false},
    {DType::kFloat16, DataType::kFloat16, true, true, true, true},
    {DType::kFloat32, DataType::kFloat32, true, true, true, true},
    {DType::kFloat64, DataType::kFloat64, false, false, false, false},
    {DType::kBFloat16, DataType::kBFloat16, true, true, true, false},
};

const Row* Find(DType dtype) {
  for (const Row& row : kTypes) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

bool FindOperation(ReduceOp op, Reduction* reduction) {
  switch (op) {
    case ReduceOp::kSum:
      *reduction = Reduction::kSum;
      return true;
    case ReduceOp::kMax:
      *reduction = Reduction::kMax;
      return true;
    case ReduceOp::kMin:
      *reduction = Reduction::kMin;
      return true;
    case ReduceOp::kProd:
      *reduction = Reduction::kProd;
      return true;
    case ReduceOp::kAvg:
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return false;
}

}  // namespace

Carriage CarriageOfV(DType dtype) {
  const Row* row = Find(dtype);
  if (row != nullptr && row->gathers) return {row->type, 1};
  return {DataType::kInt8, SizeOf(dtype)};
}

Carriage CarriageOf(DType dtype) {
  const Row* row = Find(dtype);
  if (row != nullptr) return {row->type, 1};
  return {DataType::kInt8, SizeOf(dtype)};
}

Status FindReductionV(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  const Row* row = Find(dtype);
  COLLOPS_CHECK_ARG(
      row != nullptr && row->reduces_v, ERROR_UNSUPPORTED, "backend hccl: HCCL does not reduce ",
      collops::Name(dtype),
      " to parts of uneven size; it takes int8, int16, int32, float16, float32 and bfloat16");
  *type = row->type;
  const bool known = FindOperation(op, reduction) && op != ReduceOp::kProd;
  COLLOPS_CHECK_ARG(known, ERROR_UNSUPPORTED, "backend hccl: HCCL does not scatter the ",
                    collops::Name(op), " in parts of uneven size; it takes sum, max and min");
  return Ok();
}

Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction) {
  const Row* row = Find(dtype);
  COLLOPS_CHECK_ARG(row != nullptr && row->reduces, ERROR_UNSUPPORTED,
                    "backend hccl: HCCL does not reduce ", collops::Name(dtype),
                    "; it takes int8, int16, int32, int64, float16, float32 and bfloat16");
  *type = row->type;
  COLLOPS_CHECK_ARG(FindOperation(op, reduction), ERROR_UNSUPPORTED, "backend hccl: HCCL has no ",
                    collops::Name(op), "; it takes sum, prod, max and min");
  COLLOPS_CHECK_ARG(op != ReduceOp::kProd || row->multiplies, ERROR_UNSUPPORTED,
                    "backend hccl: HCCL does not take the prod of ", collops::Name(dtype));
  return Ok();
}

}  // namespace collops::hccl

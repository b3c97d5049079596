#include "collops/operators/framework/reduction_dtypes.h"

namespace collops {

ReduceOp ReduceOpOf(const std::string& name) {
  ReduceOp op = ReduceOp::kSum;
  static_cast<void>(ParseReduceOp(name.c_str(), &op));
  return op;
}

Status CheckAtbPair(const char* operation, const std::string& backend, ReduceOp op, DType dtype) {
  const bool is_short = dtype == DType::kInt16 || dtype == DType::kBFloat16;
  COLLOPS_CHECK_ARG(backend != "hccl" || op != ReduceOp::kProd || !is_short,
                    ERROR_INVALID_TENSOR_DTYPE, operation, ": backend \"hccl\" has no prod of ",
                    Name(dtype), ": convert x to float32 or int32");
  COLLOPS_CHECK_ARG(
      backend != "lccl" || dtype != DType::kInt64, ERROR_INVALID_TENSOR_DTYPE, operation,
      ": backend \"lccl\" does not reduce int64: convert x to int32, or use \"hccl\"");
  return Ok();
}

}  // namespace collops

#pragma once

#include <string>

#include "collops/core/status.h"
#include "collops/operators/framework/signature.h"

namespace collops {

// The element types that can be reduced.
constexpr DTypeSet kReducible =
    SetOf(DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64, DType::kInt8,
          DType::kUInt8, DType::kInt16, DType::kInt32, DType::kInt64);

// The reduction that a struct names; sum for a name that the struct's check refuses.
ReduceOp ReduceOpOf(const std::string& name);

// Refuses the pairs of op and dtype that ATB refuses on the struct's `backend`: hccl has no prod of
// int16 and bfloat16, lccl no int64. Other backends take all pairs.
Status CheckAtbPair(const char* operation, const std::string& backend, ReduceOp op, DType dtype);

}  // namespace collops

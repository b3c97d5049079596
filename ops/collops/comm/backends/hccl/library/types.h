#pragma once

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/core/dtype.h"
#include "collops/core/status.h"

namespace collops::hccl {

// The type in which elements are passed to HCCL when a call only moves them: their own, or `scale`
// int8 each if HCCL does not document their type.
struct Carriage {
  DataType type = DataType::kInt8;
  int64_t scale = 1;
};
// Of HcclAllGatherV, which documents few types.
Carriage CarriageOfV(DType dtype);
// Of all other calls.
Carriage CarriageOf(DType dtype);

// HCCL's numbers of a reduction; ERROR_UNSUPPORTED if HCCL documents no such type or operation:
// of HcclReduceScatterV, and of HcclAllReduce, HcclReduceScatter and HcclReduce.
Status FindReductionV(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);
Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);

}  // namespace collops::hccl

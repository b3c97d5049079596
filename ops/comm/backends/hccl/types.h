#pragma once

#include "comm/backends/hccl/api.h"
#include "core/dtype.h"
#include "core/status.h"

namespace collops::hccl {

// How the elements of a call that only moves them travel: as themselves, or as `scale` int8 each
// where HCCL documents no such type.
struct Carriage {
  DataType type = DataType::kInt8;
  int64_t scale = 1;
};
Carriage CarriageOf(DType dtype);

// HCCL's numbers of a reduction; ERROR_UNSUPPORTED when HCCL documents no such type or operation.
Status FindReduction(DType dtype, ReduceOp op, DataType* type, Reduction* reduction);

}  // namespace collops::hccl

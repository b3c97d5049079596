#pragma once

#include <memory>
#include <vector>

#include "operators/framework/collective_operation.h"
#include "operators/framework/find_communicator.h"

namespace collops {

// The body of every InferShape: checks the struct, then the shapes. `operation` has no
// communicator.
template <typename Param>
Status InferShapeOf(const CollectiveOperation& operation, const Param& param, int rank_size,
                    const std::vector<TensorDesc>& inputs, std::vector<TensorDesc>* outputs) {
  const char* const name = operation.Name();
  Param whole = param;
  if (whole.rankSize == 0) whole.rankSize = rank_size;
  RETURN_IF_ERROR(CheckParam(whole));
  CHECK_ARG(rank_size >= 2, ERROR_INVALID_PARAM, name, ": rank_size must be >= 2, got ", rank_size);
  CHECK_ARG(whole.rankSize == rank_size, ERROR_INVALID_PARAM, name, ": rankSize is ",
            whole.rankSize, " but rank_size is ", rank_size);
  // If a struct's rank may be -1, its shapes do not depend on the rank.
  const int rank = param.rank == -1 ? 0 : param.rank;
  RETURN_IF_ERROR(CheckRank(name, rank, rank_size, ""));
  RETURN_IF_ERROR(CheckRanks(param, rank, rank_size));
  return operation.InferShapeAt({rank, rank_size}, inputs, outputs);
}

}  // namespace collops

#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collops/operators/framework/collective_operation.h"
#include "collops/operators/framework/param_check.h"
#include "collops/operators/params.h"

namespace collops {

// The operator of a struct, which need not be right yet; without a communicator, so it only knows
// shapes. Each operator's .cpp has its own, and instantiates ParamFunctions.
template <typename Param>
std::unique_ptr<CollectiveOperation> MakeOperator(const Param& param);

// Of a struct whose fields do not depend on the ranks.
template <typename Param>
Status CheckRanks(const Param& /*param*/, int /*rank*/, int /*rank_size*/) {
  return Ok();
}

// The communicator of a struct that has passed its check: the caller's hcclComm, or the domain's.
Status FindGroup(const char* operation, const GroupParam& group,
                 const std::function<Status(int rank, int rank_size)>& check_ranks,
                 std::shared_ptr<Communicator>* communicator);

// Checks the struct, and lets its operator join the communicator that the struct names. Waits for
// no one.
template <typename Param>
Status Connect(const Param& param, std::unique_ptr<CollectiveOperation> made,
               std::unique_ptr<Operation>* operation) {
  COLLOPS_CHECK_ARG(operation != nullptr, ERROR_INVALID_PARAM, made->Name(),
                    ": the place for the operation is null: pass the address of a unique_ptr");
  COLLOPS_RETURN_IF_ERROR(CheckParam(param));
  GroupParam group = param;
  // The default rank of most structs is 0; without a rankSize it counts as not set.
  if (param.rankSize == 0 && param.rank == Param().rank) group.rank = -1;
  const auto check = [&param](int rank, int size) { return CheckRanks(param, rank, size); };
  std::shared_ptr<Communicator> communicator;
  COLLOPS_RETURN_IF_ERROR(FindGroup(made->Name(), group, check, &communicator));
  made->Join(std::move(communicator), CheckDomainNumber(made->Name(), group));
  *operation = std::move(made);
  return Ok();
}

template <typename Param>
Status ParamFunctions<Param>::CreateOperation(const Param& param,
                                              std::unique_ptr<Operation>* operation) {
  return Connect(param, MakeOperator(param), operation);
}

template <typename Param>
Status ParamFunctions<Param>::InferShape(const Param& param, int rank_size,
                                         const std::vector<TensorDesc>& inputs,
                                         std::vector<TensorDesc>* outputs) {
  const std::unique_ptr<CollectiveOperation> operation = MakeOperator(param);
  const char* const name = operation->Name();
  Param whole = param;
  if (whole.rankSize == 0) whole.rankSize = rank_size;
  COLLOPS_RETURN_IF_ERROR(CheckParam(whole));
  COLLOPS_CHECK_ARG(rank_size >= 2, ERROR_INVALID_PARAM, name, ": rank_size must be >= 2, got ",
                    rank_size);
  COLLOPS_CHECK_ARG(whole.rankSize == rank_size, ERROR_INVALID_PARAM, name, ": rankSize is ",
                    whole.rankSize, " but rank_size is ", rank_size);
  // If a struct's rank may be -1, its shapes do not depend on the rank.
  const int rank = param.rank == -1 ? 0 : param.rank;
  COLLOPS_RETURN_IF_ERROR(CheckRank(name, rank, rank_size, ""));
  COLLOPS_RETURN_IF_ERROR(CheckRanks(param, rank, rank_size));
  return operation->InferShapeAt({rank, rank_size}, inputs, outputs);
}

}  // namespace collops

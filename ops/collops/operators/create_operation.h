#pragma once

#include <memory>
#include <string>
#include <utility>

#include "collops/core/operation.h"
#include "collops/operators/all_gather/param.h"
#include "collops/operators/all_gather_v/param.h"
#include "collops/operators/all_reduce/param.h"
#include "collops/operators/all_to_all/param.h"
#include "collops/operators/all_to_all_v/param.h"
#include "collops/operators/all_to_all_v_v2/param.h"
#include "collops/operators/broadcast/param.h"
#include "collops/operators/linear_parallel/param.h"
#include "collops/operators/recv/param.h"
#include "collops/operators/reduce_scatter/param.h"
#include "collops/operators/reduce_scatter_v/param.h"
#include "collops/operators/send/param.h"

namespace [[gnu::visibility("default")]] collops {

// Settings of an operation besides its struct.
struct OperationOptions {
  // LinearParallel's engine, equal on every rank: "local", "windows" or "pipeline"; empty: the
  // first one that can run. GetWorkspaceSize refuses a named engine that cannot run.
  std::string engine;
  // LinearParallel divides its sums by the number of ranks that are added.
  bool averages = false;
};

// ERROR_INVALID_PARAM for an unknown engine, and for an option that the operator does not have.
Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation);
template <typename Param>
Status CreateOperation(const Param& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  COLLOPS_CHECK_ARG(options.engine.empty(), ERROR_INVALID_PARAM, "Operation: engine \"",
                    options.engine,
                    "\" cannot be chosen: LinearParallel is the only operator with engines");
  COLLOPS_CHECK_ARG(!options.averages, ERROR_INVALID_PARAM,
                    "Operation: averages is for LinearParallel alone; set the struct's reduceType");
  return CreateOperation(param, operation);
}

// ATB's UpdateOperationParam: replaces an operation's struct by another one of the same type. An
// equal domain keeps its communicator, so there is no first contact; all plans are dropped. On an
// error the operation does not change.
template <typename Param>
Status UpdateOperation(const Param& param, std::unique_ptr<Operation>* operation) {
  std::unique_ptr<Operation> updated;
  COLLOPS_RETURN_IF_ERROR(CreateOperation(param, &updated));
  COLLOPS_CHECK_ARG(std::string((*operation)->Name()) == updated->Name(), ERROR_INVALID_PARAM,
                    updated->Name(), ": cannot update an operation named ", (*operation)->Name());
  *operation = std::move(updated);
  return Ok();
}

// For LinearParallel: the options stay; if only the rows change, neither the weight is packed again
// nor a communicator made.
Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation);

}  // namespace collops

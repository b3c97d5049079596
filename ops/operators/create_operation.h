#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/operation.h"
#include "operators/all_gather/param.h"
#include "operators/all_gather_v/param.h"
#include "operators/all_reduce/param.h"
#include "operators/all_to_all/param.h"
#include "operators/all_to_all_v/param.h"
#include "operators/all_to_all_v_v2/param.h"
#include "operators/broadcast/param.h"
#include "operators/linear_parallel/param.h"
#include "operators/recv/param.h"
#include "operators/reduce_scatter/param.h"
#include "operators/reduce_scatter_v/param.h"
#include "operators/send/param.h"

namespace collops {

// What the caller of an operation wants besides its struct.
struct OperationOptions {
  // How LinearParallel runs, equal on every rank: "local", "windows" or "pipeline"; empty: the
  // first of them that can. Known by a plan: one that cannot run is an error of GetWorkspaceSize.
  std::string engine;
  // LinearParallel's sums are divided by the number of ranks that add up.
  bool averages = false;
};

// ERROR_INVALID_PARAM for an engine that there is not, and for what the operator does not have.
Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation);
template <typename Param>
Status CreateOperation(const Param& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  CHECK_ARG(options.engine.empty(), ERROR_INVALID_PARAM, "Operation: engine \"", options.engine,
            "\" cannot be chosen: LinearParallel alone has engines");
  CHECK_ARG(!options.averages, ERROR_INVALID_PARAM,
            "Operation: averages is for LinearParallel alone; set the struct's reduceType");
  return CreateOperation(param, operation);
}

// ATB's UpdateOperationParam: gives an operation another struct of its own kind. An equal domain is
// the same communicator, so no first contact follows; the plans are gone. On an error the operation
// stays as it was.
template <typename Param>
Status UpdateOperation(const Param& param, std::unique_ptr<Operation>* operation) {
  std::unique_ptr<Operation> updated;
  RETURN_IF_ERROR(CreateOperation(param, &updated));
  CHECK_ARG(std::string((*operation)->Name()) == updated->Name(), ERROR_INVALID_PARAM,
            updated->Name(), ": cannot update an operation that is a ", (*operation)->Name());
  *operation = std::move(updated);
  return Ok();
}

// Of LinearParallel: the options stay, other rows cost no packing of the weight and no new
// communicators.
Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation);

}  // namespace collops

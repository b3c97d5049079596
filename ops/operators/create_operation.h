#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/operation.h"
#include "operators/even_params.h"
#include "operators/exchange_params.h"
#include "operators/linear_parallel/param.h"
#include "operators/message_params.h"
#include "operators/params.h"

namespace collops {

// Checks the struct, picks the backend and begins first contact; waits for no one.
Status CreateOperation(const AllGatherVParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const ReduceScatterVParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const AllGatherParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const ReduceScatterParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const AllReduceParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const BroadcastParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const SendParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const RecvParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const AllToAllParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const AllToAllVParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const AllToAllVV2Param& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation);

// What the caller of an operation wants besides its struct.
struct OperationOptions {
  // How LinearParallel runs, equal on every rank: "local", "windows" or "pipeline"; empty: the
  // first of them that can. Known by a plan: one that cannot run is an error of GetWorkspaceSize.
  std::string engine;
};

// ERROR_INVALID_PARAM for an engine that there is not, and for any where the operator has none.
Status CreateOperation(const LinearParallelParam& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation);
Status RefuseEngine(const OperationOptions& options);
template <typename Param>
Status CreateOperation(const Param& param, const OperationOptions& options,
                       std::unique_ptr<Operation>* operation) {
  RETURN_IF_ERROR(RefuseEngine(options));
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

// Of LinearParallel: the engine stays, other rows cost no packing of the weight and no new
// communicators.
Status UpdateOperation(const LinearParallelParam& param, std::unique_ptr<Operation>* operation);

}  // namespace collops

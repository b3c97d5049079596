#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/operation.h"
#include "core/status.h"
#include "operators/framework/param_check.h"

namespace collops {

// Checks fields that depend on rank and rank_size, once both are known. A struct with such fields
// overloads it beside the struct.
template <typename Param>
Status CheckRanks(const Param& /*param*/, int /*rank*/, int /*rank_size*/) {
  return Ok();
}

// The communicator of a struct that has passed its check: the caller's hcclComm, or the domain's.
Status FindGroup(const char* operation, const GroupFields& group,
                 const std::function<Status(int rank, int rank_size)>& check_ranks,
                 std::shared_ptr<Communicator>* communicator);

// The beginning of every CreateOperation. Waits for no one.
template <typename Param>
Status FindCommunicator(const char* name, const Param& param,
                        const std::unique_ptr<Operation>* operation,
                        std::shared_ptr<Communicator>* communicator) {
  CHECK_ARG(operation != nullptr, ERROR_INVALID_PARAM, name,
            ": the place for the operation is null: pass the address of a unique_ptr");
  RETURN_IF_ERROR(CheckParam(param));
  const auto check = [&param](int rank, int size) { return CheckRanks(param, rank, size); };
  return FindGroup(name, GroupOf(param), check, communicator);
}

// The ReduceOp of a struct's reduceType.
Status ParseReduceType(const char* operation, const std::string& name, ReduceOp* reduce_op);

}  // namespace collops

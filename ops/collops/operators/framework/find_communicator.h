#pragma once

#include <functional>
#include <memory>

#include "collops/comm/communicator.h"
#include "collops/core/status.h"
#include "collops/operators/framework/param_check.h"

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

}  // namespace collops

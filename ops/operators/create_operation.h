#pragma once

#include <memory>

#include "core/operation.h"
#include "operators/params.h"

namespace collops {

// Checks the struct, picks the backend and begins first contact; waits for no one.
Status CreateOperation(const AllGatherVParam& param, std::unique_ptr<Operation>* operation);
Status CreateOperation(const ReduceScatterVParam& param, std::unique_ptr<Operation>* operation);

}  // namespace collops

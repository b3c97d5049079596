#pragma once

#include <string>
#include <vector>

#include "core/env.h"
#include "core/status.h"

namespace collops {

// Which names a struct's `backend` may be, as a sum of these.
enum BackendNames : unsigned {
  kEngineNames = 1,  // what runs these operators, here or elsewhere
  kLcclName = 2,     // ATB's own kernels of collectives,
  kMatrixNames = 4,  // and those that only multiply matrices
  kLcclToo = kEngineNames | kLcclName,
  kAllNames = kEngineNames | kLcclName | kMatrixNames,
};

// ERROR_INVALID_PARAM for a name that is none of `allowed`; the message lists them.
Status CheckBackendName(const char* operation, const std::string& name, unsigned allowed);

// All that a struct's `backend` may be, of any operator.
std::vector<std::string> KnownBackendNames();

// The engine that runs what asks for `name`: COLLOPS_BACKEND may replace it, and what ATB runs on
// kernels of its own runs on what "hccl" runs on. ERROR_INVALID_PARAM for a COLLOPS_BACKEND that
// holds an unknown name on either side: one that is mistyped would go unnoticed.
Status ResolveBackend(const char* operation, const Env& env, const std::string& name,
                      std::string* backend);

}  // namespace collops

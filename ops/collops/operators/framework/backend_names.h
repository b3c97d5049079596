#pragma once

#include <string>
#include <vector>

#include "collops/core/env.h"
#include "collops/core/status.h"

namespace collops {

// The names that a struct's `backend` may have: a sum of these flags.
enum BackendNames : unsigned {
  kEngineNames = 1,  // engines: hccl, nccl, cuda, shm, ucx
  kLcclName = 2,     // lccl: ATB's own collective kernels
  kMatrixNames = 4,  // lcoc, mc2: ATB's kernels that also multiply matrices
  kLcclToo = kEngineNames | kLcclName,
  kAllNames = kEngineNames | kLcclName | kMatrixNames,
};

// ERROR_INVALID_PARAM for a name that `allowed` does not include; the message lists them.
Status CheckBackendName(const char* operation, const std::string& name, unsigned allowed);

// All names that any operator's struct may have as `backend`.
std::vector<std::string> KnownBackendNames();

// The engine for a struct with backend `name`: COLLOPS_BACKEND may replace it, and a name of ATB's
// kernels (lccl, lcoc, mc2) runs on the engine of "hccl". ERROR_INVALID_PARAM if COLLOPS_BACKEND
// has an unknown name on either side, which would otherwise go unnoticed.
Status ResolveBackend(const char* operation, const Env& env, const std::string& name,
                      std::string* backend);

}  // namespace collops

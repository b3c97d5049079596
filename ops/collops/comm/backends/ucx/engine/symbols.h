#pragma once

#include "collops/comm/backends/ucx/engine/api.h"
#include "collops/core/status.h"

namespace collops::ucx {

// Looks up every function in a handle of dlopen() for libucp. ERROR_UNSUPPORTED if one is missing.
Status FindFunctions(void* handle, Api* api);

}  // namespace collops::ucx

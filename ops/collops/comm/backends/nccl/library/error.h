#pragma once

#include "collops/comm/backends/nccl/library/api.h"
#include "collops/core/status.h"

namespace collops::nccl {

// Turns a result of NCCL into a Status: Ok, also for kInProgress, or an error code with the
// function's name (`call`), NCCL's text and, if there is one, its last error of this process.
Status ToStatus(const Api& api, Result result, const char* call);

}  // namespace collops::nccl

#pragma once

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/core/status.h"

namespace collops::hccl {

// Turns a result of HCCL or of the runtime into a Status: Ok, or an error code with the function's
// name (`call`), the number, its name and CANN's error text.
Status ToStatus(const Api& api, Result result, const char* call);
Status ToStatus(const Api& api, AclError error, const char* call);

// HCCL's name of a result, such as "HCCL_E_PARA".
const char* Name(Result result);

}  // namespace collops::hccl

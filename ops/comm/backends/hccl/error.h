#pragma once

#include "comm/backends/hccl/api.h"
#include "core/status.h"

namespace collops::hccl {

// What an answer of HCCL or of the runtime means here: Ok, or the code that fits, with the call,
// the number, its name and what CANN says about it. `call` is the function's name.
Status ToStatus(const Api& api, Result result, const char* call);
Status ToStatus(const Api& api, AclError error, const char* call);

// HCCL's name of a result, such as "HCCL_E_PARA".
const char* Name(Result result);

}  // namespace collops::hccl

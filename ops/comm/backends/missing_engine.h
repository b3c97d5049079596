#pragma once

#include "core/status.h"

namespace collops {

// ERROR_UNSUPPORTED for a backend that this version does not have; the message says that the
// vendor's library makes no difference.
Status EngineMissing(const char* backend, const char* library);

}  // namespace collops

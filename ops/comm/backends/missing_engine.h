#pragma once

#include "core/status.h"

namespace collops {

// Why a backend whose engine this version does not have cannot run: ERROR_UNSUPPORTED, which says
// that the vendor's library, there or not, makes no difference.
Status EngineMissing(const char* backend, const char* library);

}  // namespace collops

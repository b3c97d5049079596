#pragma once

#include "core/status.h"

namespace collops {

// Why a backend whose engine this version does not have cannot run: ERROR_UNSUPPORTED with what the
// loader says when the vendor's library is missing, else with the missing engine itself.
Status EngineMissing(const char* backend, const char* library);

}  // namespace collops

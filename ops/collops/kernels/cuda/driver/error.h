#pragma once

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/api.h"

namespace collops::cuda {

// Turns a result of the driver into a Status: Ok, or an error code with the function's name
// (`call`), the number, and the driver's name and text of it.
Status ToStatus(const DriverApi& api, Result result, const char* call);

}  // namespace collops::cuda

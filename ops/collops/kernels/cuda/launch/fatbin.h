#pragma once

#include <vector>

#include "collops/core/status.h"

namespace collops::cuda {

// The compiled kernels, collops_kernels.fatbin: the file that COLLOPS_KERNELS names, or the one
// beside the library or program that holds this code. Read once in a process. ERROR_UNSUPPORTED,
// with the reason, if there is none. Thread-safe.
Status ReadFatbin(const std::vector<char>** image);

}  // namespace collops::cuda

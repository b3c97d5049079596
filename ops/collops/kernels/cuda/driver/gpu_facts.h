#pragma once

#include <string>
#include <utility>
#include <vector>

namespace collops::cuda {

// What `collops doctor` prints of the driver and of its GPUs, as names and texts: what is missing
// has a row of its own, whose text begins with "no: ". Makes no context on a GPU.
std::vector<std::pair<std::string, std::string>> GpuFacts();

}  // namespace collops::cuda

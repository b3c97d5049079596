#pragma once

namespace collops_sim {

// From now on a segmentation fault at an address of a simulated GPU says so before it ends the
// process: host code has touched device memory, or a kernel memory that is not mapped for it.
void ExplainFaults();

}  // namespace collops_sim

#pragma once

#include <string>

#include "sim/faults.h"

// What went wrong on the simulated GPUs. SimLastText() tells a thread why its last call was
// refused. A mistake is printed and counted; with COLLOPS_SIM_STRICT=1 it ends the process. With
// COLLOPS_SIM_FAIL="run.NAME:1:700" the first run of that kernel ends with 700, and so its context.
namespace collops_sim {

// Whether a test has named that function to SimBlock(): it then returns only when its GPU has
// nothing left to do, as every call does while another thread loads a module.
bool IsBlocked(const std::string& name);

}  // namespace collops_sim

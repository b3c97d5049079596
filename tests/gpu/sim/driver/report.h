#pragma once

#include <string>

#include "sim/faults.h"

// What went wrong on the simulated GPUs. SimLastText() tells a thread why its last call was
// refused. A mistake is printed and counted; with COLLOPS_SIM_STRICT=1 it ends the process. With
// COLLOPS_SIM_FAIL="run.NAME:1:700" the first run of that kernel ends with 700, and so its context.
namespace collops_sim {

using Result = Answer;

// Numbers of CUresult that collops has no name for.
constexpr auto kMapFailed = static_cast<Result>(205);
constexpr auto kInvalidImage = static_cast<Result>(200);
constexpr auto kInvalidSource = static_cast<Result>(300);
constexpr auto kPeerAccessNotEnabled = static_cast<Result>(705);
constexpr auto kLaunchOutOfResources = static_cast<Result>(701);
constexpr auto kLaunchTimeout = static_cast<Result>(702);
constexpr auto kCaptureWrongThread = static_cast<Result>(908);

// Whether a test has named that function to SimBlock(): it then returns only when its GPU has
// nothing left to do, as every call does while another thread loads a module.
bool IsBlocked(const std::string& name);

}  // namespace collops_sim

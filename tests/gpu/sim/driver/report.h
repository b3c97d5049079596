#pragma once

#include <string>

#include "collops/kernels/cuda/driver.h"

// What went wrong on the simulated GPUs, and what a test wants to go wrong.
namespace collops_sim {

using collops::cuda::Result;

// Numbers of CUresult that collops has no name for.
constexpr auto kMapFailed = static_cast<Result>(205);
constexpr auto kInvalidImage = static_cast<Result>(200);
constexpr auto kInvalidSource = static_cast<Result>(300);
constexpr auto kPeerAccessNotEnabled = static_cast<Result>(705);
constexpr auto kLaunchOutOfResources = static_cast<Result>(701);
constexpr auto kLaunchTimeout = static_cast<Result>(702);
constexpr auto kCooperativeTooLarge = static_cast<Result>(720);
constexpr auto kCaptureUnmatched = static_cast<Result>(903);
constexpr auto kCaptureUnjoined = static_cast<Result>(904);
constexpr auto kCaptureIsolation = static_cast<Result>(905);
constexpr auto kCapturedEvent = static_cast<Result>(907);
constexpr auto kCaptureWrongThread = static_cast<Result>(908);
constexpr auto kMergesCaptures = static_cast<Result>(902);

// An answer to a wrong call, and why: SimLastText() tells the thread.
Result Refuse(Result result, const std::string& text);

// A mistake for which real CUDA has no answer. It is printed and counted; with COLLOPS_SIM_STRICT=1
// it ends the process.
void Mistake(const std::string& text);

// COLLOPS_SIM_FAIL="cuMemAlloc_v2:3:2,...": the third call answers 2. "run.NAME:1:700": the first
// run of that kernel ends with 700, and so its context. 0 for a call that shall work.
int PlannedFailure(const std::string& name);

// Whether a test has named that function to SimBlock(): it then returns only when its GPU has
// nothing left to do, as every call does while another thread loads a module.
bool IsBlocked(const std::string& name);

// COLLOPS_SIM_TIMEOUT_S, or 60: after it, a wait of the simulation itself is a mistake.
double TimeoutS();

}  // namespace collops_sim

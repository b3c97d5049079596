#pragma once

#include <cstdlib>

#include "collops/kernels/cuda/driver.h"

// What the simulated device of tests/devices/sim is as CUDA's driver: its answers and its habits.
namespace collops_sim {

using Answer = collops::cuda::Result;
constexpr Answer kFine = Answer::kSuccess;
// Numbers of CUresult that collops has no name for.
constexpr auto kIsCaptured = Answer::kInvalidValue;
constexpr auto kNotCaptured = Answer::kInvalidValue;
constexpr auto kJoinsCaptures = static_cast<Answer>(902);
constexpr auto kEndsElsewhere = static_cast<Answer>(903);
constexpr auto kNotJoined = static_cast<Answer>(904);
constexpr auto kWaitsOutside = static_cast<Answer>(905);
constexpr auto kAskedOfGraph = static_cast<Answer>(907);
// A captured stream may wait for an event that was never recorded.
constexpr bool kMayWaitForUnrecorded = true;
// A kernel's error is its context's; what comes behind is run.
constexpr bool kErrorsAreOfStreams = false;
constexpr bool kHasLegacyStream = true;
constexpr int kMostDelayUs = 300;

// CUDA_DEVICE_MAX_CONNECTIONS; 0: as many as there are streams.
inline int NumQueues() {
  const char* const text = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace collops_sim

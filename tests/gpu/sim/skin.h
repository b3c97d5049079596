#pragma once

#include <cstdlib>

#include "driver/numbers.h"

// What the simulated device of tests/devices/sim is as CUDA's driver: its answers and its habits.
namespace collops_sim {

using Answer = Result;
constexpr Answer kFine = Answer::kSuccess;
constexpr auto kIsCaptured = kInvalidValue;
constexpr auto kNotCaptured = kInvalidValue;
constexpr auto kJoinsCaptures = kCaptureMerge;
constexpr auto kEndsElsewhere = kCaptureUnmatched;
constexpr auto kNotJoined = kCaptureUnjoined;
constexpr auto kWaitsOutside = kCaptureIsolation;
constexpr auto kAskedOfGraph = kCapturedEvent;
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

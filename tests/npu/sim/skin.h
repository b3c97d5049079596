#pragma once

// What the simulated device of tests/devices/sim is as CANN's runtime: its answers and its habits.
namespace collops_sim {

using Answer = int;
constexpr Answer kFine = 0;
constexpr Answer kWaitsOutside = 107024;   // ACL_ERROR_RT_CAPTURE_DEPENDENCY
constexpr Answer kNotJoined = 107025;      // ACL_ERROR_RT_STREAM_UNJOINED
constexpr Answer kIsCaptured = 107027;     // ACL_ERROR_RT_STREAM_CAPTURED
constexpr Answer kAskedOfGraph = 107028;   // ACL_ERROR_RT_EVENT_CAPTURED
constexpr Answer kNotCaptured = 107029;    // ACL_ERROR_RT_STREAM_NOT_CAPTURED
constexpr Answer kJoinsCaptures = 107032;  // ACL_ERROR_STREAM_CAPTURE_CONFLICT
constexpr Answer kEndsElsewhere = 107036;  // ACL_ERROR_RT_STREAM_CAPTURE_UNMATCHED
// A captured stream may wait for captured events only.
constexpr bool kMayWaitForUnrecorded = false;
// A stream whose task has failed runs nothing more, and says so from then on.
constexpr bool kErrorsAreOfStreams = true;
constexpr bool kHasLegacyStream = false;
constexpr int kMostDelayUs = 500;

inline int NumQueues() {
  return 0;  // as many as there are streams
}

}  // namespace collops_sim

#pragma once

#include "collops/comm/backends/call_prediction.h"

namespace collops::ucx {

// What a call on several hosts would cost, by simulating the ranks' schedules. Of any number of
// ranks; local, waits for no one. ERROR_INVALID_PARAM for a call that no group can make.
Status Predict(const CallToPredict& call, Prediction* prediction);

}  // namespace collops::ucx

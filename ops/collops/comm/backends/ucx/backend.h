#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"
#include "collops/comm/backends/call_prediction.h"

namespace collops::ucx {

// The row of the backend table: CPU tensors between ranks on several hosts. If a rank table places
// all ranks on one host, or there is none, they are of that host alone, and use shared memory.
Status Available();
Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);
// Where this host has no UCX, the ranks of the others learn it.
void Decline(const control::GroupSpec& spec, const Status& reason);
int64_t SharedBytes(int rank_size);
// Which UCX it is and what it can use, or why it cannot be opened. Opens UCX.
std::vector<std::pair<std::string, std::string>> ShownFacts();

// What a call on several hosts would cost, by simulating the ranks' schedules. Of any number of
// ranks; local, waits for no one. ERROR_INVALID_PARAM for a call that no group can make.
Status Predict(const CallToPredict& call, Prediction* prediction);

}  // namespace collops::ucx

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"

namespace collops::cuda_peers {

// The row of the backend table: GPUs of one host that can address each other's memory.
Status Available();
// Host memory that a communicator of `rank_size` ranks shares.
int64_t SharedBytes(int rank_size);
Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);

// The driver, its GPUs, and the libraries of both backends of CUDA tensors; what is missing, with
// the reason.
std::vector<std::pair<std::string, std::string>> ShownFacts();

}  // namespace collops::cuda_peers

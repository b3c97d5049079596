#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"

namespace collops::nccl {

// The row of the backend table: CUDA tensors through NCCL, which is opened at run time.
Status Available();
// Host memory that a communicator of `rank_size` ranks shares.
int64_t SharedBytes(int rank_size);
Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);

// Rank, rank_size and comm_domain (its address: NCCL's communicators have no names) of an
// ncclComm_t that the caller passes.
Status Describe(void* comm, CommunicatorSpec* spec);

// A communicator on the caller's ncclComm_t, which the caller keeps and which must outlive it.
Status Adopt(const CommunicatorSpec& spec, void* comm, std::shared_ptr<Communicator>* communicator);

// The version of NCCL, or why there is none.
std::vector<std::pair<std::string, std::string>> ShownFacts();

}  // namespace collops::nccl

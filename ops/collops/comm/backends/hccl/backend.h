#pragma once

#include <memory>

#include "collops/comm/communicator.h"

namespace collops::hccl {

// The row of the backend table: NPU tensors through HCCL, which is opened at run time.
Status Available();
// Host memory that a communicator of `rank_size` ranks shares.
int64_t SharedBytes(int rank_size);
Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator);

// Rank, rank_size and comm_domain (its name) of an HcclComm that the caller passes.
Status Describe(void* comm, CommunicatorSpec* spec);

// A communicator on the caller's HcclComm, which the caller keeps and which must outlive it.
Status Adopt(const CommunicatorSpec& spec, void* comm, std::shared_ptr<Communicator>* communicator);

// How its sums may differ from golden's bits.
inline constexpr char kSums[] =
    "it adds in HCCL's order: sums are exact where every partial sum is";

}  // namespace collops::hccl

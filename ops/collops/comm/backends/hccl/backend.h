#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backend_communicator.h"

namespace collops::hccl {

// The row of the backend table: NPU tensors through HCCL, which is opened at run time.
Status Available();
// The NPUs' name, such as "Ascend910B3"; empty where there is none.
std::string SocName();
// The memory that HCCL takes for a communicator, and for those of this process together.
std::vector<std::pair<std::string, std::string>> ShownFacts();
// Host memory that a communicator of `rank_size` ranks shares.
int64_t SharedBytes(int rank_size);
Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);

// A communicator that has HCCL's functions from `api` (library.h). `comm`: the caller's HcclComm,
// or null; a Control without a board always comes with one, or with a part that was split off it.
struct Api;
std::shared_ptr<Communicator> Make(std::shared_ptr<control::Control> control, const Api& api,
                                   void* comm, bool compares);

// Rank, rank_size and comm_domain (its name) of an HcclComm that the caller passes.
Status Describe(void* comm, CommunicatorSpec* spec);

// A communicator on the caller's HcclComm, which the caller keeps and which must outlive it.
Status Adopt(const CommunicatorSpec& spec, void* comm, std::shared_ptr<Communicator>* communicator);

// How its sums may differ from golden's bits.
inline constexpr char kSums[] =
    "it adds in HCCL's order: sums are exact where every partial sum is; "
    "COLLOPS_HCCL_SUMS=rank_order: as on the CPU";

}  // namespace collops::hccl

#pragma once

#include <memory>

#include "comm/communicator.h"

namespace collops::hccl {

// The row of the backend table: NPU tensors through HCCL, which is opened at run time. First
// contact is made between the ranks of one host.
Status Available();
Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator);

// A communicator on the caller's HcclComm, which stays the caller's and must outlive it.
Status Adopt(void* comm, std::shared_ptr<Communicator>* communicator);

}  // namespace collops::hccl

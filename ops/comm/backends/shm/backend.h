#pragma once

#include <memory>

#include "comm/communicator.h"

namespace collops::shm {

// The row of the backend table: CPU tensors between the ranks of one host, over shared memory.
Status Available();
Status Create(const CommunicatorSpec& spec, std::shared_ptr<Communicator>* communicator);

}  // namespace collops::shm

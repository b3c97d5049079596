#pragma once

#include <cstdint>
#include <memory>

#include "collops/comm/backend_communicator.h"

namespace collops::shm {

// The row of the backend table: CPU tensors between the ranks of one host, over shared memory.
Status Available();
Status Create(const control::GroupSpec& spec, std::shared_ptr<Communicator>* communicator);

// Shared memory that a communicator of `rank_size` ranks takes, without windows.
int64_t SegmentBytes(int rank_size);

}  // namespace collops::shm

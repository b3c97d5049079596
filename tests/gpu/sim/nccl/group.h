#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nccl/comm.h"

namespace collops_sim {

// Calls between ncclGroupStart and ncclGroupEnd of this thread; a call outside is a group of its
// own.
Nccl StartGroup();
Nccl EndGroup();

// Checks a call, and puts it into the group.
Nccl Add(const char* function, void* comm, const Call& call, void* stream);
// The making of a communicator, which waits for the other ranks: at the end of the group, where all
// are made at once. `comm` is kept if it works.
Nccl AddInit(const std::shared_ptr<Comm>& comm, std::function<Nccl()> init);

}  // namespace collops_sim

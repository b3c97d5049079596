#pragma once

#include <memory>

#include "comm/backends/hccl/engine.h"
#include "comm/control/control.h"
#include "core/status.h"

namespace collops::hccl {

// Connects the ranks in HCCL, in the first call of every rank: by the part that a split made, by
// the group's rank table, or by rank 0's root info, which goes over the host connection. The ranks
// agree on the way, on COLLOPS_CHECK (`compares`) and on what HCCL has on their SoCs. Waits for all
// ranks, at most the time-out, and then in HCCL at most HCCL_CONNECT_TIMEOUT.
Status Meet(control::Control* control, bool compares, int device, Engine* engine);

// The name of the agreement, and of the call in which Control refuses.
inline constexpr char kFirstContact[] = "first contact";

}  // namespace collops::hccl

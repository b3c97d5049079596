#pragma once

#include <memory>
#include <string>

#include "collops/comm/communicator.h"

namespace collops {

// What init() of the plain level and of C does: the communicator of `spec`, after first contact.
// What `spec` leaves out comes from the launcher or the rank table (rank and rank_size -1), from
// where the ranks are (an empty backend) and from COLLOPS_TIMEOUT_S (timeout_s 0). `tuning`: sizes
// in place of those of COLLOPS_TUNING. Waits for all ranks.
Status ConnectGroup(CommunicatorSpec spec, const std::string& tuning,
                    std::shared_ptr<Communicator>* communicator);

}  // namespace collops

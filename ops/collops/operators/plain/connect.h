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

// What init(join=) does: the communicator of a group that grows, whose new rank this process
// becomes. Of `spec` rank, rank_size and tuning are not used. Waits for the group.
Status JoinGroup(CommunicatorSpec spec, std::shared_ptr<Communicator>* communicator);

}  // namespace collops

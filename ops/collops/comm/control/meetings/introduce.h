#pragma once

#include <memory>
#include <vector>

#include "collops/comm/control/control.h"
#include "collops/comm/control/meetings/part_meeting.h"

namespace collops::control {

// Whether these ranks of a group are on several hosts.
bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks);

// A call of `parent` in which the ranks of each subgroup on several hosts tell each other where
// their hosts accept connections. Every rank of the parent makes it. `members`: this rank's
// subgroup, in its order; *introduction stays null if it is on one host, or empty. A rank that
// cannot listen refuses the call.
Status Introduce(Control* parent, const std::vector<int>& members,
                 std::shared_ptr<Introduction>* introduction);

}  // namespace collops::control

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collops/comm/control/tcp/door.h"
#include "collops/comm/control/tcp/row.h"
#include "collops/core/deadline.h"

namespace collops::control::tcp {

// Connects the hosts of a group, each with each: called after first contact by the lowest rank of
// each host, of which there are two or more. Host i connects to all before it, at the doors that
// their rows name; both prove themselves. `watch` is called again and again; its error ends the
// wait. `connections`: by host, for a TcpBridge.
Status ConnectHosts(const std::string& domain, const std::vector<Row>& rows, int rank,
                    const JobSecret& secret, Door* door, const std::function<Status()>& watch,
                    const Deadline& deadline, std::vector<Connection>* connections);

}  // namespace collops::control::tcp

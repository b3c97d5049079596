#pragma once

#include <memory>
#include <vector>

#include "collops/comm/backends/ucx/engine/worker.h"
#include "collops/comm/backends/ucx/heads.h"
#include "collops/comm/backends/ucx/host_map.h"
#include "collops/comm/communicator.h"
#include "collops/comm/control/control.h"

namespace collops::ucx {

// What a rank moves bytes with, once the ranks are connected: UCX to the ranks of other hosts, and
// a communicator of backend shm among the ranks of its own host.
struct Link {
  control::Control* control = nullptr;
  HostMap hosts;
  std::unique_ptr<Worker> worker;
  std::unique_ptr<Heads> heads;
  // A worker is for one thread at a time. Messages between two ranks have their own, because a
  // thread may wait for them while another one is in a group call: neither waits for the other, or
  // takes what the other sleeps for.
  std::unique_ptr<Worker> pair_worker;
  std::shared_ptr<Communicator> host;  // its ranks are local indices; null if this rank is alone
};

// Exchanges UCX addresses over Control and connects to the ranks of other hosts with which this one
// exchanges heads, then creates the communicator of this host. A connection to another rank is made
// by the first message to it. Every rank of the group calls it, inside a call.
Status ConnectLink(const std::shared_ptr<control::Control>& control, std::unique_ptr<Link>* link);

}  // namespace collops::ucx

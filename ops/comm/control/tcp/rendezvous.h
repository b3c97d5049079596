#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/tcp/door.h"
#include "comm/control/tcp/row.h"
#include "core/deadline.h"
#include "core/status.h"

namespace collops::control::tcp {

// A rank of a group whose ranks are on several hosts.
struct RendezvousSpec {
  std::string domain;
  int rank = 0;
  int rank_size = 0;
  std::string host;  // rank 0's, an address or a name: its rank-table address, or MASTER_ADDR
  int port = 0;      // COLLOPS_PORT
  JobSecret secret;
  std::string bytes;  // for the other ranks, at most Row::kMostBytes
};

// First contact of ranks on several hosts. Rank 0 listens; the others connect, try again until the
// deadline, and prove themselves. Rank 0 checks that they fit together and sends every rank the
// rows of all. An error reaches all that are there. Not thread-safe, except Stop().
class Rendezvous {
 public:
  static std::unique_ptr<Rendezvous> Create(const RendezvousSpec& spec);
  virtual ~Rendezvous() = default;

  // Rank 0 begins to listen: a taken port is an error now. Does not wait.
  virtual Status Begin() = 0;
  // Waits for all ranks until the deadline, whose error names the missing ones. `rows` is by rank.
  virtual Status Complete(const Deadline& deadline, std::vector<Row>* rows) = 0;
  // Makes a Complete() that runs in another thread return soon.
  void Stop() { stopped_.store(true, std::memory_order_release); }

  // Where this rank accepts connections of other hosts, as its row says.
  Door* door() { return &own_door_; }

 protected:
  explicit Rendezvous(const RendezvousSpec& spec);

  // ERROR_ABORTED after Stop(), or if the user has interrupted the wait.
  Status CheckWanted() const;
  // Listens at that address of this host, and makes this rank's row.
  Status MakeOwnRow(SocketAddress address);
  // "comm_domain "dp" at 10.0.0.1:29577"
  std::string Place() const;
  static void Sleep(std::vector<pollfd>* polled, int most_ms);

  const RendezvousSpec spec_;
  Row own_row_;

 private:
  Door own_door_;
  std::atomic<bool> stopped_{false};
};

}  // namespace collops::control::tcp

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/tcp/door.h"
#include "collops/comm/control/tcp/first_contact/port_contact.h"
#include "collops/comm/control/tcp/row.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

// First contact of ranks on several hosts. Rank 0 listens at a free port, and says at the job's
// port where; the others ask there, connect to it, try again until the deadline, and prove
// themselves. Rank 0 checks that they fit together and sends every rank the rows of all. Until
// Finish(), the end or failure of one rank reaches all. Not thread-safe, except Stop().
class Rendezvous {
 public:
  static std::unique_ptr<Rendezvous> Create(const RendezvousSpec& spec);
  virtual ~Rendezvous() = default;

  // The job's rank 0 opens the job's port, if it can be done at once. Does not wait.
  void Begin() { contact_.Begin(); }
  // Waits for all ranks until the deadline, whose error names the missing ones. `rows` is by rank.
  virtual Status Complete(const Deadline& deadline, std::vector<Row>* rows) = 0;
  // After Complete(), without waiting: an error if a rank has failed or ended since.
  virtual Status Look() = 0;
  // Tells the others what became of this rank since, and waits for their word. Ok if all are well.
  virtual Status Finish(const Status& own, const Deadline& deadline) = 0;
  // Instead of Complete(): those who wait for this rank get `reason`. Waits at most a second.
  void Leave(const Status& reason);
  // Makes a Complete() that runs in another thread return soon.
  void Stop() { stopped_.store(true, std::memory_order_release); }

  // Where this rank accepts connections of other hosts, as its row says.
  Door* door() { return &own_door_; }

 protected:
  Rendezvous(const RendezvousSpec& spec, const char* purpose);

  // ERROR_ABORTED after Stop(), or if the user has interrupted the wait.
  Status CheckWanted() const;
  // Listens at that address of this host, and makes this rank's row.
  Status MakeOwnRow(SocketAddress address);
  // "comm_domain "dp" at 10.0.0.1:29577"
  std::string Place() const;
  static void Sleep(std::vector<pollfd>* polled, int most_ms);

  const RendezvousSpec spec_;
  PortContact contact_;
  Row own_row_;

 private:
  Door own_door_;
  std::atomic<bool> stopped_{false};
};

}  // namespace collops::control::tcp

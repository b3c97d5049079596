#pragma once

#include <string>

#include "collops/comm/control/bootstrap/unique_fd.h"
#include "collops/comm/control/tcp/socket_address.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

// Listens at one address of this host. No function waits.
class Listener {
 public:
  // Port 0: any free port. An error if the port is taken, which `taken` then says, or the address
  // not of this host. A child of fork() does not listen: UniqueFd closes the socket there.
  static Status Open(const SocketAddress& address, Listener* listener, bool* taken = nullptr);

  // With the port that was found.
  const SocketAddress& address() const { return address_; }
  int socket() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void Close();

  // Not valid if nobody waits to be accepted. If this process may not open a descriptor, the client
  // is turned away, and tries again.
  UniqueFd Accept();
  // Clients that were turned away.
  int turned_away() const { return turned_away_; }

 private:
  bool TurnAway();

  SocketAddress address_;
  UniqueFd socket_;
  UniqueFd spare_;  // reserved: closed to take a client when no descriptor is left
  int turned_away_ = 0;
};

}  // namespace collops::control::tcp

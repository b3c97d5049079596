#pragma once

#include <sys/socket.h>

#include <string>

#include "collops/core/status.h"

namespace collops::control::tcp {

// Equal in two processes if they can meet in the memory and sockets of one host: COLLOPS_SERVER_ID;
// else the boot of the machine and the network namespace. So a container is a host of its own.
// Virtual machines that were copied while they ran may need COLLOPS_SERVER_ID.
std::string HostIdentity();

// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;  // 0: none

  // "10.0.0.1:29577", "[fe80::1%2]:29577"
  std::string Text() const;
  // The address alone: "10.0.0.1", "fe80::1%2".
  std::string Host() const;
  int port() const;
  void set_port(int port);
};

// False for a name.
bool ParseNumeric(const std::string& host, int port, SocketAddress* address);

// The address of `host`, which is an address or a name; looks a name up, which may take a minute
// (see Lookup). Of several addresses, one of this host alone (127.0.0.1) comes last.
Status Resolve(const std::string& host, int port, SocketAddress* address);

// The address of this end of a connection, or of a listener; of the other end of a connection.
SocketAddress OwnAddress(int socket);
SocketAddress PeerAddress(int socket);

}  // namespace collops::control::tcp

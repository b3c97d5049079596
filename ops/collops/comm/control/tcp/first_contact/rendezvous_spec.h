#pragma once

#include <cstdint>
#include <string>

#include "collops/comm/control/tcp/handshake.h"

namespace collops::control::tcp {

// A rank of a group whose ranks are on several hosts.
struct RendezvousSpec {
  std::string domain;
  int rank = 0;
  int rank_size = 0;
  std::string host;       // of the job's rank 0, an address or a name, where the job's port is
  int port = 0;           // COLLOPS_PORT
  bool has_port = false;  // this process is the job's rank 0, and holds the job's port
  uint64_t meeting = 0;   // how many groups of this domain the process has made before
  JobSecret secret;
  std::string bytes;  // for the other ranks, at most Row::kMostBytes
};

}  // namespace collops::control::tcp

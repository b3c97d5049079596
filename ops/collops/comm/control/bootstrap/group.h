#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/bootstrap/shared_fd.h"
#include "collops/comm/control/segment.h"

namespace collops::control {

class Watcher;

// What a rank knows about a peer, or about itself.
struct Peer {
  pid_t pid = 0;
  SharedFd mailbox;   // a socket for window mails; hangs up when the peer has left
  SharedFd lifeline;  // a pidfd that the peer opened on itself; readable when its process has ended
  int number = -1;    // in messages, if it is not the rank: that of a larger group
  int host = 0;  // a peer of another host has no mailbox or lifeline: a watcher reports its state
};

// The result of first contact: a Peer for every rank, the segment that the ranks of this host
// share, and the inbox of this rank's window mails.
struct Group {
  std::vector<Peer> peers;
  Segment segment;
  UniqueFd inbox;

  int host = 0;  // this rank's host; hosts are numbered in the order of their first ranks
  std::string
      address;    // of this host, for connections of other hosts; only where there are several
  UniqueFd bell;  // wakes the watcher of this host; only where there are several hosts
  std::string table_digest;          // of a rank table that was completed at first contact
  std::shared_ptr<Watcher> watcher;  // set in the rank whose process runs the watcher
};

}  // namespace collops::control

#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "comm/control/bootstrap/unique_fd.h"
#include "comm/control/segment.h"

namespace collops::control {

class Watcher;

// What a rank knows of another one, or of itself.
struct Peer {
  pid_t pid = 0;
  UniqueFd mailbox;   // takes our messages to it (window_mail.h); hangs up when the rank has left
  UniqueFd lifeline;  // a pidfd the rank made of itself; readable when its process has ended
  int host = 0;       // of another host it has neither: a watcher writes what is known of it
};

// What first contact yields: everyone's Peer by rank, the segment that the ranks of this host
// share, and where our mail comes.
struct Group {
  std::vector<Peer> peers;
  Segment segment;
  UniqueFd inbox;

  int host = 0;   // this one; they are numbered in the order of their first ranks
  UniqueFd bell;  // wakes this host's watcher, where there are several
  std::shared_ptr<Watcher> watcher;  // of the rank whose process runs it
};

}  // namespace collops::control

#pragma once

#include <sys/types.h>

#include <vector>

#include "comm/control/segment.h"
#include "comm/control/bootstrap/unique_fd.h"

namespace collops::control {

// What a rank knows of another one, or of itself.
struct Peer {
  pid_t pid = 0;
  UniqueFd mailbox;   // takes our messages to it (window_mail.h); hangs up when the rank has left
  UniqueFd lifeline;  // a pidfd the rank made of itself; readable when its process has ended
};

// What first contact yields: everyone's Peer by rank, the common segment, and where our mail comes.
struct Group {
  std::vector<Peer> peers;
  Segment segment;
  UniqueFd inbox;
};

}  // namespace collops::control

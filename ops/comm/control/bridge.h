#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collops::control {

using Frame = std::vector<std::byte>;

// Carries frames between the boards of the hosts of one group; what a carrier (TCP, a test's queue)
// must do. Hosts are numbered from 0. Frames from one host to another arrive whole and in order, or
// the connection is seen as broken; those told before that may be lost, none of them comes later.
// Owned by a Watcher, whose thread alone calls it. Nothing here waits.
class Bridge {
 public:
  virtual ~Bridge() = default;

  // False: there is no room now, and the frame is not sent.
  virtual bool Tell(int host, const Frame& frame) = 0;
  // The next frame that has come, from whom; false: none.
  virtual bool Take(int* host, Frame* frame) = 0;

  // How often the connection to a host has been made. When it changes, all is told again, from the
  // beginning: it changes in Take() alone, and what is told over a connection that has broken
  // before that is lost.
  virtual uint64_t Joined(int host) const = 0;
  // The connection is broken and will not be made again.
  virtual bool Lost(int host) const = 0;

  // What becomes ready when there is something to take, or room again.
  virtual void AddPolled(std::vector<pollfd>* polled) const = 0;
};

}  // namespace collops::control

#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace collops::control {

using Frame = std::vector<std::byte>;

// Carries frames between the boards of the hosts of one group, over TCP or, in a test, a queue.
// Hosts are numbered from 0. Frames from one host to another arrive whole and in order; those of
// different hosts have no order among them. If a connection breaks, the latest frames may be lost
// and no later frame arrives. Owned by a Watcher; only its thread calls the bridge. Nothing here
// waits, except the destructor: a moment, until the other hosts have what was sent.
class Bridge {
 public:
  virtual ~Bridge() = default;

  // False if there is no room: the frame was not sent.
  virtual bool Tell(int host, const Frame& frame) = 0;
  // The next frame that has arrived, and its host; false if there is none.
  virtual bool Take(int* host, Frame* frame) = 0;

  // How often the connection to a host has been made. After it changes, all state must be sent
  // again, because frames of the broken connection may be lost. It changes only in Take().
  virtual uint64_t Joined(int host) const = 0;
  // The connection is broken and will not be made again.
  virtual bool Lost(int host) const = 0;
  // Why, in words for the user; empty if nothing is known.
  virtual std::string WhyLost(int) const { return ""; }

  // The descriptors to poll: ready if a frame has arrived, or if there is room again.
  virtual void AddPolled(std::vector<pollfd>* polled) const = 0;
};

}  // namespace collops::control

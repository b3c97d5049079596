#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/comm/control/waiter.h"
#include "collops/core/status.h"

namespace collops::control {

// What a rank says for all ranks of its host: they have begun the step, and agree on it.
struct HostHead {
  uint64_t step = 0;  // as SignalHead::step
  uint64_t digest = 0;
  uint64_t balance = 0;  // the sum over the ranks of the host
};

// Carries the heads of hosts over a backend's own connections, which is faster than the watchers.
// A rank gets the heads of each other host from one rank there, its source. It judges nothing:
// stale heads of refused steps are delivered, too. Owned by the backend; used by Step alone.
class HeadCarrier {
 public:
  virtual ~HeadCarrier() = default;

  // One rank of every other host.
  virtual size_t num_sources() const = 0;
  virtual int source(size_t index) const = 0;

  // Sends the head to the ranks that get it from here; only if Sent(). A rank that is lost is left
  // out.
  virtual Status Send(const HostHead& head) = 0;
  // Whether everything has left.
  virtual bool Sent() = 0;
  // Moves what can be moved, without waiting.
  virtual void Progress() = 0;
  // The next head of a source, in the order in which it was sent; false if there is none.
  virtual bool Take(size_t index, HostHead* head) = 0;
  // Ok, or why nothing more can come from a source.
  virtual Status LossOf(size_t index) const = 0;
  // Sleeps until something may have arrived, or until `wake_condition` ends.
  virtual void Sleep(const WakeCondition& wake_condition) = 0;
};

}  // namespace collops::control

// What joins the boards of the hosts of a test.
#pragma once

#include <memory>

#include "collops/comm/control/hosts/watcher.h"

namespace hosts {

// A test may change it from any thread.
class Wire {
 public:
  virtual ~Wire() = default;

  virtual std::unique_ptr<collops::control::Bridge> EndOf(int host) = 0;
  // Breaks all connections for good.
  virtual void Cut() = 0;
  // Stops the watcher of a host, as if its process had been stopped.
  virtual void Stop(int host) = 0;
  virtual void GoOn(int host) = 0;
};

}  // namespace hosts

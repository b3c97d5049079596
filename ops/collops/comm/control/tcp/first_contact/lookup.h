#pragma once

#include <memory>
#include <string>

#include "collops/comm/control/tcp/socket_address.h"

namespace collops::control::tcp {

// Finds the address of a host without waiting. A name is looked up in a thread of its own, as the
// resolver may wait for its servers longer than any deadline here; whoever gives up leaves it.
class Lookup {
 public:
  Lookup(const std::string& host, int port);

  // True once it is over: `address` is set, or `status` says why it is not.
  bool Done(Status* status, SocketAddress* address) const;

 private:
  struct Answer;
  std::shared_ptr<Answer> answer_;
};

}  // namespace collops::control::tcp

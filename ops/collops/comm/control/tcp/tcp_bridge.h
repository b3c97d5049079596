#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/control/hosts/bridge.h"
#include "collops/comm/control/tcp/connection.h"

namespace collops::control::tcp {

// Joins the boards of several hosts by one connection to each. A connection that has ended is not
// made again. Only so much is sent to a host as its process has yet to read, so that a process that
// is stopped is never taken for a host that is lost: a full receive buffer looks the same.
class TcpBridge : public Bridge {
 public:
  // `connections`: by host, each proven; that of this host, `own_host`, is not used.
  TcpBridge(int own_host, std::vector<Connection> connections);
  // Waits for the other hosts, at most kFinishS, until they have all that was sent.
  ~TcpBridge() override;

  bool Tell(int host, const Frame& frame) override;
  bool Take(int* host, Frame* frame) override;
  uint64_t Joined(int) const override { return 1; }
  bool Lost(int host) const override;
  std::string WhyLost(int host) const override;
  void AddPolled(std::vector<pollfd>* polled) const override;

  static constexpr double kFinishS = 1.0;
  // No more is sent while so many bytes are not confirmed. Far less than any receive buffer.
  static constexpr uint64_t kMostUnconfirmed = 32 * 1024;

 private:
  struct Way {
    explicit Way(Connection made) : connection(std::move(made)) {}

    Connection connection;
    uint64_t sent = 0;       // bytes of frames, and of those
    uint64_t confirmed = 0;  // what the other host has read
    uint64_t taken = 0;      // likewise, the other way
    uint64_t told = 0;
  };
  bool TakeFrom(Way* way, Frame* frame);
  static void Confirm(Way* way);

  int own_host_;
  std::vector<Way> ways_;
  size_t next_ = 0;  // the host whose frames are taken first, so that none waits for ever
};

}  // namespace collops::control::tcp

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/hosts/lobby.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/core/deadline.h"

namespace collops::control {

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
  bool Lost(int host) const override;
  std::string WhyLost(int host) const override;
  void AddPolled(std::vector<pollfd>* polled) const override;

  static constexpr double kFinishS = 1.0;
  // No more is sent while so many bytes are not confirmed. Far less than any receive buffer.
  static constexpr uint64_t kMostUnconfirmed = 32 * 1024;

 private:
  struct Channel {
    explicit Channel(Connection made) : connection(std::move(made)) {}

    Connection connection;
    uint64_t sent = 0;       // bytes of frames, and of those
    uint64_t confirmed = 0;  // what the other host has read
    uint64_t taken = 0;      // likewise, the other way
    uint64_t acknowledged = 0;
  };
  bool TakeFrom(Channel* channel, Frame* frame);
  static void Confirm(Channel* channel);

  int own_host_;
  std::vector<Channel> channels_;
  size_t next_ = 0;  // the host whose frames are taken first, so that none waits for ever
};

// What the ranks of a group on several hosts know of each other before those of each host meet: of
// a group, by the hosts' rendezvous; of a subgroup, over the group that it was split from.
struct Introduction {
  std::vector<Row> rows;  // by rank; of a subgroup, a host's name is its number in the parent
  JobSecret secret;
  std::string address;  // of this host; empty: of a group of one rank, which others cannot reach
  Status unreachable;   // why they cannot
  int port = 0;         // of a group: the job's, at the host of whichever rank is its rank 0
  // Where this rank is reached: open in the lowest rank of each host; of a group that can be
  // shrunk, in every rank. The groups own it, and until they have met, who makes them.
  std::weak_ptr<Lobby> lobby;
};

// Connects the hosts of a group, each with each: called by the lowest rank of each host, of which
// there are two or more. Host i connects to all before it, at the listeners that their rows name;
// both prove themselves. `watch` is called again and again; its error ends the wait. `connections`:
// by host, for a TcpBridge.
Status ConnectHosts(const std::string& domain, const Introduction& introduction, int rank,
                    const std::function<Status()>& watch, const Deadline& deadline,
                    std::vector<Connection>* connections);

}  // namespace collops::control

#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "collops/comm/control/tcp/door.h"
#include "collops/comm/control/tcp/first_contact/introduction.h"

namespace collops::control::tcp {

// The port of a job, held by the process of its rank 0. It introduces domains: rank 0 of a domain
// listens at a port of its own, and says here where; the others are told, as soon as it is known.
// A rank that leaves before first contact says so here, and those who ask later still learn it. A
// thread answers, also outside of calls; it ends with the last who shares the port. A child of
// fork() has no part in it.
class JobPort {
 public:
  // The port of this process at that address, opened by the first who asks. `taken`: an error is
  // that of a port that somebody has.
  static Status Share(const SocketAddress& address, const JobSecret& secret,
                      std::shared_ptr<JobPort>* port, bool* taken);
  // A port of this process at that address, with a free number; Share() finds it there.
  static Status OpenFree(SocketAddress address, const JobSecret& secret,
                         std::shared_ptr<JobPort>* port);
  const SocketAddress& address() const { return door_.address(); }
  explicit JobPort(const JobSecret& secret) : door_(secret) {}
  ~JobPort();
  JobPort(const JobPort&) = delete;
  JobPort& operator=(const JobPort&) = delete;

 private:
  // One who has proven to be of this job, until he hangs up.
  struct Client {
    Connection connection;
    Claim claim;
    Said said = {};
    bool leads = false;  // rank 0 of its domain, and where it listens is known
    bool told = false;   // an answer that ends it
  };
  // A rank that has left.
  struct Leaver {
    std::string domain;
    int rank = 0;
    uint64_t meeting = 0;
    Status reason;
  };

  Status Open(const SocketAddress& address, bool* taken);
  void Run();
  void Receive();
  void ReadFrom(Client* client);
  void Hear(Client* client, const Said& said);
  void Lead(Client* client);
  void Leave(const Client& client);
  static void Answer(Client* client, const Frame& frame);
  Client* LeaderOf(const std::string& domain);
  void Sleep();

  Door door_;
  std::list<Client> clients_;
  std::deque<Leaver> leavers_;
  UniqueFd bell_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace collops::control::tcp

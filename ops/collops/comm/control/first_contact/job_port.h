#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/handshake.h"
#include "collops/comm/control/first_contact/job_listener.h"
#include "collops/comm/control/first_contact/port_messages.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// What a rank wants at the job's port, as the purpose of its Claim says.
constexpr const char* kRegister = "register";  // rank 0 of a domain: where it listens
constexpr const char* kFind = "find";          // another rank: where that is
constexpr const char* kLeave = "leave";        // any rank: it will not come

// The port of a job, held by the process of its rank 0. It introduces domains: rank 0 of a domain
// listens at a port of its own, and says here where; the others are told, as soon as it is known.
// A rank that leaves before first contact says so here, and those who ask later still learn it. Who
// waits learns whom the port has turned away, and rank 0 of a domain who has asked for it. A thread
// answers, also outside of calls; it ends with the last who shares the port. A child of
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
  const SocketAddress& address() const { return listener_.address(); }
  explicit JobPort(const JobSecret& secret) : listener_(secret) {}
  ~JobPort();
  JobPort(const JobPort&) = delete;
  JobPort& operator=(const JobPort&) = delete;

 private:
  // One who has proven to be of this job, until he hangs up.
  struct Client {
    Connection connection;
    Claim claim;
    PortMessage request = {};
    bool leads = false;     // rank 0 of its domain, and where it listens is known
    bool answered = false;  // by an answer that ends it
  };
  // A rank that has left.
  struct Leaver {
    std::string domain;
    int rank = 0;
    pid_t pid = 0;
    uint64_t meeting = 0;
    Status reason;
  };
  // A rank that has asked for rank 0 of its domain.
  struct Asker {
    std::string domain;
    int rank = 0;
    uint64_t meeting = 0;
    std::string where;
  };

  Status Open(const SocketAddress& address, bool* taken);
  void Run();
  void Receive();
  void ReadFrom(Client* client);
  void TakeRequest(Client* client, const PortMessage& request);
  void Find(Client* client);
  void Lead(Client* client);
  void TellTurnedAway();
  void TellTurnedAwayTo(Client* client) const;
  void Leave(const Client& client);
  static void Answer(Client* client, const PortMessage& answer);
  Client* LeaderOf(const std::string& domain);
  void Sleep();

  JobListener listener_;
  std::list<Client> clients_;
  std::deque<Leaver> leavers_;
  std::deque<Asker> askers_;
  std::deque<std::string> told_turned_away_;
  Deadline tell_again_ = Deadline::After(0);
  UniqueFd doorbell_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace collops::control

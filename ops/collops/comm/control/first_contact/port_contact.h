#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/communicator_spec.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/handshake.h"
#include "collops/comm/control/first_contact/job_port.h"
#include "collops/comm/control/first_contact/missing_ranks.h"
#include "collops/comm/control/first_contact/port_messages.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// A rank of a group whose ranks are on several hosts.
struct RendezvousSpec {
  std::string domain;
  int rank = 0;
  int rank_size = 0;
  std::string host;       // of the job's rank 0, an address or a name, where the job's port is
  int port = 0;           // COLLOPS_PORT
  bool has_port = false;  // this process is the job's rank 0, and holds the job's port
  uint64_t meeting = 0;   // how many groups of this domain the process has made before
  JobSecret secret;
  Voice voice;
  // For messages: the caller's comm_domain, the job, and by rank the host on which the rank table
  // places it (empty: there is none).
  std::string comm_domain = "";
  std::string job = "";
  std::vector<std::string> hosts = {};
};

// Attempts to connect to a listener of this job, and to prove to be of it, one after another: the
// listener may come last. No function waits; one thread uses it.
class Connector {
 public:
  // `secret` must outlive this object.
  Connector(const JobSecret* secret, Claim claim) : secret_(secret), claim_(std::move(claim)) {}

  // Begins an attempt, after a pause since the last one, or goes on with it. An error if no later
  // attempt can succeed.
  Status Step(const SocketAddress& to);
  bool proven() const { return proven_; }
  // Whether an attempt has failed since the last call.
  bool TakeFailed();
  // Only while proven. If it ends, Drop() it.
  Connection& connection() { return client_->connection(); }
  // The next Step() begins another attempt.
  void Drop();

  // The end of its pause is no descriptor: poll() no longer than 50 ms.
  void AddPolled(std::vector<pollfd>* polled) const;
  // Why it is not proven, e.g. "nobody listens at 10.0.0.1:29577".
  std::string Failure() const;

 private:
  void Connect(const SocketAddress& to);

  const JobSecret* secret_;
  Claim claim_;
  SocketAddress to_;
  std::optional<HandshakeClient> client_;
  bool proven_ = false;
  bool failed_ = false;
  int pause_ms_ = 0;
  Deadline pause_ = Deadline::After(0);
  Deadline answer_ = Deadline::After(0);  // by then, the listener should have answered
  std::string last_failure_;
};

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

// A rank's way to the job's port, which its process opens if it is the job's rank 0, and keeps open
// as long as this object lives. No function waits, except Leave(); one thread uses it.
class PortContact {
 public:
  // `spec` must outlive this object. `purpose`: kRegister, kFind or kLeave.
  PortContact(const RendezvousSpec* spec, const char* purpose);

  // Opens the port, if that can be done without looking a name up.
  void Begin();
  // One round: open the port, connect, or go on proving. An error if the address is not known, the
  // port is taken by another job or a stranger, or this rank is refused.
  Status Step();
  // The answer, once there is one. The request is sent once the connection is proven; rank 0 says
  // where it listens, which `listen` finds out from the address of this host's end.
  using Listen = std::function<Status(const SocketAddress& own, PortMessage* request)>;
  Status Ask(const Listen& listen, std::optional<PortMessage>* answer);
  // Hangs up.
  void Finish(const Deadline& deadline);
  // Says that this rank will not come, if the port is there, or until `patience` comes to be there.
  void Leave(const Status& reason, const Deadline& deadline, const Deadline& patience);

  void AddPolled(std::vector<pollfd>* polled) const { connector_.AddPolled(polled); }
  bool proven() const { return connector_.proven(); }
  // The port is to be open in this process, and is not.
  bool LacksPort() const { return spec_->has_port && port_ == nullptr; }
  // This process has the port.
  bool has_port() const { return port_ != nullptr; }
  // Of the port, once it is known.
  const SocketAddress& address() const { return address_; }
  // Why this rank has not reached the port.
  std::string Failure() const;
  // What the port has told of others.
  const PortHearsay& hearsay() const { return hearsay_; }

 private:
  Status FindAddress();
  Status KeepPort();
  Status Taken() const;
  PortMessage OwnRequest() const;

  const RendezvousSpec* spec_;
  std::optional<Lookup> lookup_;
  std::string not_found_;  // why the last look-up failed
  Deadline look_again_ = Deadline::After(0);
  std::optional<Deadline> look_until_;
  SocketAddress address_;
  std::shared_ptr<JobPort> port_;
  Status taken_;
  std::optional<Deadline> taken_until_;
  Connector connector_;
  PortHearsay hearsay_;
  bool asked_ = false;
};

}  // namespace collops::control

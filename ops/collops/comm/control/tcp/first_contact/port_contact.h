#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/tcp/first_contact/approach.h"
#include "collops/comm/control/tcp/first_contact/job_port.h"
#include "collops/comm/control/tcp/first_contact/lookup.h"
#include "collops/comm/control/tcp/first_contact/rendezvous_spec.h"

namespace collops::control::tcp {

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
  // The answer, once there is one. What is said is sent once the connection is proven; rank 0 says
  // where it listens, which `listen` finds out from the address of this host's end.
  using Listen = std::function<Status(const SocketAddress& own, Said* said)>;
  Status Ask(const Listen& listen, std::optional<Told>* told);
  // Hangs up.
  void Finish(const Deadline& deadline);
  // Says that this rank will not come, if the port is there.
  void Leave(const Status& reason, const Deadline& deadline);

  void AddPolled(std::vector<pollfd>* polled) const { approach_.AddPolled(polled); }
  bool proven() const { return approach_.proven(); }
  // The port is to be open in this process, and is not.
  bool LacksPort() const { return spec_->has_port && port_ == nullptr; }
  // Of the port, once it is known.
  const SocketAddress& address() const { return address_; }
  // Why this rank has not reached the port.
  std::string Failure() const;

 private:
  Status FindAddress();
  Status KeepPort();
  Status Taken() const;
  Said OwnSaid() const;

  const RendezvousSpec* spec_;
  std::optional<Lookup> lookup_;
  std::string not_found_;  // why the last look-up failed
  Deadline look_again_ = Deadline::After(0);
  std::optional<Deadline> look_until_;
  SocketAddress address_;
  std::shared_ptr<JobPort> port_;
  Status taken_;
  std::optional<Deadline> taken_until_;
  Approach approach_;
  bool asked_ = false;
};

}  // namespace collops::control::tcp

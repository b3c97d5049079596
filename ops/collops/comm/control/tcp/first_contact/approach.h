#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/tcp/handshake.h"

namespace collops::control::tcp {

// Attempts to connect to a listener of this job, and to prove to be of it, one after another: the
// listener may come last. No function waits; one thread uses it.
class Approach {
 public:
  // `secret` must outlive this object.
  Approach(const JobSecret* secret, Claim claim) : secret_(secret), claim_(std::move(claim)) {}

  // Begins an attempt, after a pause since the last one, or goes on with it. An error if no later
  // attempt can succeed.
  Status Step(const SocketAddress& to);
  bool proven() const { return proven_; }
  // Whether an attempt has failed since the last call.
  bool TakeFailed();
  // Only while proven. If it ends, Drop() it.
  Connection& connection() { return application_->connection(); }
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
  std::optional<Application> application_;
  bool proven_ = false;
  bool failed_ = false;
  int pause_ms_ = 0;
  Deadline pause_ = Deadline::After(0);
  Deadline answer_ = Deadline::After(0);  // by then, the listener should have answered
  std::string last_failure_;
};

}  // namespace collops::control::tcp

#pragma once

#include <cstdint>
#include <string>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/core/deadline.h"
#include "collops/core/sha256.h"
#include "collops/core/status.h"

namespace collops::control {

// Changes with every frame that this folder sends.
constexpr uint64_t kProtocolVersion = 4;

// How the ranks of a job know each other. Without a key the job's id is the key: it keeps out
// accidents, not attackers. Neither is sent, and the key is not printed.
struct JobSecret {
  std::string job_id;
  std::string key;
};

// What one who connects says he is; the proof covers it.
struct Claim {
  std::string domain;
  std::string purpose;  // what the connection is for
  int rank = 0;
  int rank_size = 0;
  std::string host = "";  // HostName() of who connects
};

enum class Proof { kUnderWay, kGiven, kRefused };

// The listener's side: both prove that they know the secret, and neither proof can serve as the
// other. One connection; Step() never waits.
class Challenge {
 public:
  // `secret` must outlive this object.
  Challenge(Connection connection, const JobSecret* secret);

  Proof Step();
  // kRefused: why, e.g. "127.0.0.1:4711 belongs to another job". The other end was told if it
  // speaks this protocol, and the connection is to be dropped once it has hung up.
  const Status& refusal() const { return refusal_; }
  // The same without a port, and who the other end says it is, which it has not proven: "10.0.0.2,
  // which says it is rank 2 on node2 and has another key". Empty: it only hung up.
  const std::string& turned_away() const { return turned_away_; }
  // Whether the other end has said who it is.
  bool greeted() const { return !their_nonce_.empty(); }
  Connection& connection() { return connection_; }
  const Connection& connection() const { return connection_; }
  const Claim& claim() const { return claim_; }

 private:
  Proof Greet(const Frame& hello);
  Proof Check(const Frame& proof);
  Proof Refuse(ErrorCode code, const std::string& why, const std::string& fact);

  Connection connection_;
  const JobSecret* secret_;
  Claim claim_;
  std::string their_nonce_;
  std::string own_nonce_;
  Status refusal_;
  std::string turned_away_;
};

// The side that connects.
class HandshakeClient {
 public:
  // `secret` must outlive this object.
  HandshakeClient(Connection connection, const JobSecret* secret, Claim claim);

  Proof Step();
  // kRefused: why the listener refused, or the connection ended.
  const Status& refusal() const { return refusal_; }
  // False: the ranks of this job cannot agree. True: another listener may follow this one, which
  // has hung up, belongs to another job, or is none of this protocol.
  bool may_retry() const { return may_retry_; }
  Connection& connection() { return connection_; }
  const Connection& connection() const { return connection_; }

 private:
  Proof Answer(const Frame& challenge);
  Proof Judge(const Frame& welcome);
  Proof Refused(const Status& why, bool may_retry);

  Connection connection_;
  const JobSecret* secret_;
  Claim claim_;
  std::string own_nonce_;
  std::string their_nonce_;
  bool said_hello_ = false;
  bool may_retry_ = true;
  Status refusal_;
};

}  // namespace collops::control

// Ranks of one job that meet at a port of this host, in processes and threads of a test; and one
// that a test leads through first contact step by step.
#pragma once

#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/rendezvous.h"
#include "control/first_contact/loopback.h"
#include "ranks.h"

namespace loopback {

using collops::control::Claim;
using collops::control::FieldReader;
using collops::control::FieldWriter;
using collops::control::HandshakeClient;
using collops::control::MessageKind;
using collops::control::PortMessage;
using collops::control::Proof;
using collops::control::RendezvousSpec;
using collops::control::Row;

inline const double kMeetS = check::Patience(20);

inline int FreePort(const std::string& host = "127.0.0.1") {
  return ListenAt(host).address().port();
}

// A rank of comm_domain "dp"; rank 0 opens the port.
inline RendezvousSpec SpecOf(int rank, int rank_size, int port,
                             const std::string& host = "127.0.0.1") {
  RendezvousSpec spec;
  spec.domain = "dp";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.host = host;
  spec.port = port;
  spec.has_port = rank == 0;
  spec.secret = {"a job", "a key"};
  return spec;
}

// First contact of one rank, whose part ends as `own`.
inline Status Meet(const RendezvousSpec& spec, double timeout_s = kMeetS,
                   const Status& own = collops::Ok()) {
  std::vector<Row> rows;
  const auto rendezvous = collops::control::Rendezvous::Create(spec);
  const auto deadline = collops::Deadline::After(timeout_s);
  const Status met = rendezvous->Complete(deadline, &rows);
  return met.ok() ? rendezvous->Finish(own, deadline) : met;
}

inline void ExpectWell(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

inline void Kill(pid_t pid) {
  kill(pid, SIGKILL);
  EXPECT_FALSE(ranks::Wait(pid).exited);
}

// A rank that joins as the protocol says, and then waits for what rank 0 says.
class ByHand {
 public:
  explicit ByHand(const RendezvousSpec& spec) : spec_(spec) {
    PortMessage said;
    said.pid = getpid();
    Frame frame;
    PortMessage told;
    Await([&] {
      Prove(At(spec_.host, spec_.port), "find");
      static_cast<void>(client_->connection().Send(said.frame()));
      return Await([&] { return client_->connection().Receive(&frame); }) &&
             PortMessage::Read(frame, &told) && told.reason.ok();
    });
    client_.reset();
    Prove(At(told.address, told.port), "ranks");
    Row row;
    row.rank = spec_.rank;
    row.pid = getpid();
    row.host = "a host";
    row.address = "127.0.0.1";
    FieldWriter fields = MessageOf(MessageKind::kRow);
    row.Write(&fields);
    EXPECT_TRUE(client_->connection().Send(fields.frame()));
  }
  // Until rank 0 says that these ranks are missing: all others have come.
  void AwaitMissing(const std::string& missing) {
    Frame frame;
    Await([&] {
      if (!client_->connection().Receive(&frame)) return false;
      FieldReader fields(frame);
      return fields.Number() == static_cast<uint64_t>(MessageKind::kProgress) &&
             fields.Text(4096) == missing;
    });
  }

 private:
  void Prove(const SocketAddress& address, const char* purpose) {
    Await([&] {
      if (!client_) {
        client_.emplace(Connection(address), &spec_.secret,
                        Claim{spec_.domain, purpose, spec_.rank, spec_.rank_size});
      }
      const Proof proof = client_->Step();
      if (proof == Proof::kRefused) client_.reset();
      return proof == Proof::kGiven;
    });
  }

  RendezvousSpec spec_;
  std::optional<HandshakeClient> client_;
};

// Asks at the job's port where rank 0 is, and does not go there.
inline void AskAndEnd(const RendezvousSpec& spec) {
  collops::control::PortContact contact(&spec, "find");
  std::optional<PortMessage> answer;
  Await([&] {
    EXPECT_EQ(contact.Ask(nullptr, &answer).message(), "");
    return answer && answer->port != 0;
  });
}

}  // namespace loopback

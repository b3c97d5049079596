#pragma once

#include <bitset>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/board.h"
#include "comm/control/tcp/rendezvous.h"

namespace collops::control::tcp {

// How often a wait looks for Ctrl-C and its deadline.
constexpr int kLookMs = 50;

// Rank 0.
class RendezvousLeader : public Rendezvous {
 public:
  explicit RendezvousLeader(const RendezvousSpec& spec) : Rendezvous(spec), port_(spec.secret) {}
  ~RendezvousLeader() override;

  Status Begin() override;
  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;

 private:
  struct Client {
    Connection connection;
    Claim claim;
    bool admitted = false;
  };
  using Clients = std::list<Client>;

  Status Gather(const Deadline& deadline);
  void Receive();
  Status ReadFrom(Client* client);
  Status Admit(Client* client, const Row& row);
  Status TakeLeave(const Client& client, FieldReader* fields) const;
  void TellProgress();
  Status Introduce(const Deadline& deadline);
  void TellAll(const Status& reason, const Deadline& deadline);
  std::string Missing() const;

  Door port_;
  Clients clients_;
  std::vector<Row> rows_;
  std::bitset<kMaxRanks> present_;
  std::bitset<kMaxRanks> told_;
};

// Any other rank.
class RendezvousMember : public Rendezvous {
 public:
  explicit RendezvousMember(const RendezvousSpec& spec) : Rendezvous(spec) {}
  ~RendezvousMember() override;

  Status Begin() override { return Ok(); }
  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;

 private:
  Status Wait(const Deadline& deadline);
  Status Connect(const Deadline& deadline);
  Status Prove();
  Status Listen();
  Status Handle(const Frame& frame);
  Status TimedOut(const Deadline& deadline) const;
  void Leave(const Status& reason);

  SocketAddress address_;
  std::optional<Application> application_;
  bool proven_ = false;
  bool welcome_ = false;
  int pause_ms_ = 0;
  std::string missing_;                   // by rank 0's last word
  Deadline answer_ = Deadline::After(0);  // by then, rank 0 should have answered this attempt
  std::string last_failure_;              // of an attempt to connect
  std::vector<Row> rows_;
};

}  // namespace collops::control::tcp

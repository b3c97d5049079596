#pragma once

#include <bitset>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/board.h"
#include "comm/control/tcp/first_contact/rendezvous.h"

namespace collops::control::tcp {

// How often a wait looks for Ctrl-C and its deadline.
constexpr int kLookMs = 50;
// What a connection to rank 0 of a domain is for.
constexpr const char* kRanks = "ranks";

// Rank 0.
class RendezvousLeader : public Rendezvous {
 public:
  explicit RendezvousLeader(const RendezvousSpec& spec)
      : Rendezvous(spec, kRegister), ranks_door_(spec.secret) {}
  ~RendezvousLeader() override;

  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;
  Status Look() override;
  Status Finish(const Status& own, const Deadline& deadline) override;

 private:
  struct Client {
    Connection connection;
    Claim claim;
    bool admitted = false;
    bool done = false;  // it said that it is well
  };
  using Clients = std::list<Client>;

  Status Gather(const Deadline& deadline);
  Status Register();
  Status Listen(const SocketAddress& own, Said* said);
  void Receive();
  Status ReadFrom(Client* client);
  Status Admit(Client* client, const Row& row);
  Status TakeLeave(const Client& client, FieldReader* fields) const;
  void TellProgress();
  Status Introduce();
  Status AwaitDone(const Deadline& deadline);
  void TellAll(const Status& reason, const Deadline& deadline);
  Status TimedOut(const Deadline& deadline) const;
  std::string Missing() const;
  bool Complete() const { return present_.count() == static_cast<size_t>(spec_.rank_size); }

  Door ranks_door_;
  Clients clients_;
  std::vector<Row> rows_;
  std::bitset<kMaxRanks> present_;
  std::bitset<kMaxRanks> told_;
  bool registered_ = false;
};

// Any other rank.
class RendezvousMember : public Rendezvous {
 public:
  explicit RendezvousMember(const RendezvousSpec& spec)
      : Rendezvous(spec, kFind),
        approach_(&spec_.secret, {spec.domain, kRanks, spec.rank, spec.rank_size}) {}
  ~RendezvousMember() override;

  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;
  Status Look() override;
  Status Finish(const Status& own, const Deadline& deadline) override;

 private:
  Status Wait();
  Status Find();
  Status Join();
  Status Listen();
  Status Handle(const Frame& frame);
  Status TimedOut(const Deadline& deadline) const;
  std::string WhyNotJoined() const;
  void TellLeader(const Status& reason);

  SocketAddress meet_at_;   // rank 0's, as the job's port said
  std::string introduced_;  // where the job's port said that rank 0 listens
  Approach approach_;
  bool joined_ = false;   // rank 0 has this rank's row
  bool welcome_ = false;  // this rank has all rows
  bool over_ = false;     // rank 0 has said that all are well, or why not
  std::string missing_;   // by rank 0's last word
  std::vector<Row> rows_;
};

}  // namespace collops::control::tcp

#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/tcp/first_contact/host_speaker.h"
#include "collops/comm/control/tcp/first_contact/rendezvous.h"
#include "collops/comm/rank_set.h"

namespace collops::control::tcp {

// How often a wait looks for Ctrl-C and its deadline.
constexpr int kLookMs = 50;
// What a connection to rank 0 of a domain is for.
constexpr const char* kRanks = "ranks";

// Rank 0.
class RendezvousLeader : public Rendezvous {
 public:
  explicit RendezvousLeader(const RendezvousSpec& spec)
      : Rendezvous(spec, kRegister),
        ranks_door_(spec.secret),
        present_(RankSet::None(spec.rank_size)),
        done_(RankSet::None(spec.rank_size)) {}
  ~RendezvousLeader() override;

  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;
  Status Look() override;
  Status Finish(const Status& own, const Deadline& deadline) override;

 private:
  // A rank that speaks for its host.
  struct Client {
    Connection connection;
    Claim claim;
    RankSet ranks;  // whose rows it has sent: its own first
    bool admitted = false;
  };
  using Clients = std::list<Client>;

  Status Gather(const Deadline& deadline);
  Status Register();
  Status Listen(const SocketAddress& own, Said* said);
  void Receive();
  Status ReadFrom(Client* client);
  // `sound`: it is a note that this client may send.
  Status Take(Client* client, const Frame& frame, bool* sound);
  Status Admit(Client* client, const Row& row);
  Status TakeLeave(int rank, FieldReader* fields) const;
  void TellProgress();
  Status Introduce(const Deadline& deadline);
  Status SendToAll(const std::vector<Frame>& frames, const Deadline& deadline);
  Status AwaitDone(const Deadline& deadline);
  void TellAll(const Status& reason, const Deadline& deadline);
  Status TimedOut(const Deadline& deadline) const;
  std::string NotDone() const;
  bool Complete() const { return num_present_ == spec_.rank_size; }
  const Row& RowOf(int rank) const { return rows_[static_cast<size_t>(rank)]; }

  Door ranks_door_;
  Clients clients_;
  std::vector<Row> rows_;
  RankSet present_;
  int num_present_ = 0;
  int told_present_ = 0;  // by the last progress
  Deadline tell_again_ = Deadline::After(0);
  RankSet done_;  // they said that they are well
  int num_done_ = 0;
  bool registered_ = false;
};

// Any other rank: it speaks for its host, or follows the one that does.
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
  enum class Role { kUndecided, kSpeaks, kFollows };
  // What this rank waits for, and why: the two parts of the message of a time-out.
  struct Lack {
    std::string what;
    std::string why;
  };

  Status Wait();
  void ChooseRole();
  Status Find();
  Status Join();
  Status JoinSpeaker();
  Status SendRow(const SocketAddress& own);
  // Takes what has come from rank 0, or from the speaker.
  Status Listen();
  Status Handle(const Frame& frame);
  Status TakeSpeaker(FieldReader* fields);
  Status Serve();
  Lack Lacks() const;
  Status TimedOut(const Deadline& deadline) const;
  std::string WhyNotJoined() const;
  // Ends first contact, and tells the others.
  void End(const Status& reason);
  Frame Farewell(const Status& reason) const;
  // The connection on which rank 0 hears this rank, and the one at its other end.
  Connection& way() { return role_ == Role::kFollows ? to_speaker_ : approach_.connection(); }
  std::string OtherEnd() const { return role_ == Role::kFollows ? speaker_name_ : "rank 0"; }

  Role role_ = Role::kUndecided;
  std::optional<Deadline> decided_by_;
  HostSpeaker followers_;  // of this rank, if it speaks
  Connection to_speaker_;  // if it follows
  std::string speaker_name_;
  Lack speaker_lacks_;
  SocketAddress meet_at_;   // rank 0's, as the job's port said
  std::string introduced_;  // where the job's port said that rank 0 listens
  Approach approach_;
  bool joined_ = false;   // this rank's row is on its way to rank 0
  bool welcome_ = false;  // this rank has all rows
  bool over_ = false;     // rank 0 has said that all are well, or why not
  bool heard_ = false;    // why first contact ends comes from elsewhere
  std::string missing_;   // by rank 0's last word
  std::vector<Row> rows_;
};

}  // namespace collops::control::tcp

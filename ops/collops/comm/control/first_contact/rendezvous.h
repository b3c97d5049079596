#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/job_listener.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/first_contact/missing_ranks.h"
#include "collops/comm/control/first_contact/port_contact.h"
#include "collops/comm/rank_set.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// One rank of a host speaks for the others there, so that rank 0 has one connection to each host:
// the first that listens at a name of this host, to which the others then connect. It passes on
// what they say to rank 0, and what rank 0 says to all. No function waits, except the ends; one
// thread uses it.
class HostRelay {
 public:
  // Ranks that may speak for each other have one name: those of one host, user, group, job and key,
  // with one version of the protocol.
  static std::string NameOf(const RendezvousSpec& spec);

  // False if another socket has the name.
  bool Open(const std::string& name);
  // From then on until an end.
  bool open() const { return open_; }
  // Of the relay, and its process; not valid if nobody listens at the name, or another user does.
  static UniqueFd Reach(const std::string& name, pid_t* pid);

  // For all followers, also those that come later: frames that they get one after another, and the
  // latest word, which replaces the one before.
  void Pass(const Frame& frame) { passed_.push_back(frame); }
  void Tell(const Frame& frame);
  // Rank 0 has the rows of all: whoever comes later, or has sent none, is not of the group.
  void Complete();
  // One round: takes followers, sends them what they do not have yet, and passes on to `rank_0`
  // what they say. Null: there is no connection yet. An error if no descriptor is left for one.
  Status Serve(Connection* rank_0);
  void AddPolled(std::vector<pollfd>* polled) const;

  // Hangs up, once the followers have all that was passed.
  void Finish(const Deadline& deadline);
  // Tells the followers that first contact ends, and why, and hangs up.
  void End(const Status& reason, const Deadline& deadline);

 private:
  struct Follower {
    Connection connection;
    int rank = -1;  // -1: its row has not come
    size_t passed = 0;
    uint64_t waits_sent = 0;
    bool left = false;  // it said why it leaves
  };

  Status Accept();
  static void Hear(Follower* follower, Connection* rank_0);
  static void HearMessage(Follower* follower, const Frame& frame, Connection* rank_0);
  void Send(Follower* follower) const;

  UniqueFd listener_;
  bool open_ = false;
  std::list<Follower> followers_;
  std::vector<Frame> passed_;
  Frame latest_;
  uint64_t waits_made_ = 0;
};

// First contact of ranks on several hosts. Rank 0 listens at a free port, and says at the job's
// port where; the others ask there, connect to it, try again until the deadline, and prove
// themselves. Rank 0 checks that they fit together and sends every rank the rows of all. Until
// Finish(), the end or failure of one rank reaches all. Not thread-safe, except Stop().
class Rendezvous {
 public:
  static std::unique_ptr<Rendezvous> Create(const RendezvousSpec& spec);
  virtual ~Rendezvous() = default;

  // The job's rank 0 opens the job's port, if it can be done at once. Does not wait.
  void Begin() { contact_.Begin(); }
  // Waits for all ranks until the deadline, whose error names the missing ones. `rows` is by rank.
  virtual Status Complete(const Deadline& deadline, std::vector<Row>* rows) = 0;
  // After Complete(), without waiting: an error if a rank has failed or ended since.
  virtual Status Look() = 0;
  // Tells the others what became of this rank since, and waits for their word. Ok if all are well.
  virtual Status Finish(const Status& own, const Deadline& deadline) = 0;
  // Instead of Complete(): those who wait for this rank get `reason`. Waits at most a second; or
  // `patience_s` seconds, for the job's port to be there.
  void Leave(const Status& reason, double patience_s = 0);
  // Makes a Complete() that runs in another thread return soon.
  void Stop() { stopped_.store(true, std::memory_order_release); }

  // Where this rank accepts connections of other hosts, as its row says.
  std::unique_ptr<JobListener> TakeListener() { return std::move(own_listener_); }
  // Why others cannot reach this rank, which was alone.
  const Status& unreachable() const { return unreachable_; }

 protected:
  Rendezvous(const RendezvousSpec& spec, const char* purpose);

  // ERROR_ABORTED after Stop(), or if the user has interrupted the wait.
  Status CheckWanted() const;
  // Listens at that address of this host, and makes this rank's row.
  Status MakeOwnRow(SocketAddress address);
  // "comm_domain "dp" at 10.0.0.1:29577"
  std::string Place() const;
  // For whom a rank waits, and what is known of them.
  struct Awaited {
    std::string whom;
    std::string known;
  };
  // Says it after a while, once.
  void TellWaitingFor(const std::function<Awaited()>& awaited);

  const RendezvousSpec spec_;
  PortContact contact_;
  Row own_row_;
  Status unreachable_;

 private:
  WaitingLine waiting_;
  std::unique_ptr<JobListener> own_listener_;
  std::atomic<bool> stopped_{false};
};

// What a connection to rank 0 of a domain is for.
constexpr const char* kRanks = "ranks";

// Rank 0.
class RendezvousLeader : public Rendezvous {
 public:
  explicit RendezvousLeader(const RendezvousSpec& spec)
      : Rendezvous(spec, kRegister),
        ranks_listener_(spec.secret),
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

  // Of one rank alone, which meets nobody, but its group may grow.
  Status MakeOnlyRow();
  Status Gather(const Deadline& deadline);
  Status Register();
  Status Listen(const SocketAddress& own, PortMessage* request);
  void Receive();
  Status ReadFrom(Client* client);
  // `sound`: it is a message that this client may send.
  Status Take(Client* client, const Frame& frame, bool* sound);
  Status Admit(Client* client, const Row& row);
  Status TakeLeave(int rank, FieldReader* fields) const;
  void TellProgress();
  std::string Known() const;
  Status Introduce(const Deadline& deadline);
  Status SendToAll(const std::vector<Frame>& frames, const Deadline& deadline);
  Status AwaitDone(const Deadline& deadline);
  void TellAll(const Status& reason, const Deadline& deadline);
  Status TimedOut(const Deadline& deadline) const;
  std::string NotDone() const;
  bool Complete() const { return num_present_ == spec_.rank_size; }
  const Row& RowOf(int rank) const { return rows_[static_cast<size_t>(rank)]; }

  JobListener ranks_listener_;
  Clients clients_;
  std::vector<Row> rows_;
  RankSet present_;
  int num_present_ = 0;
  int sent_present_ = 0;    // by the last progress
  std::string sent_known_;  // likewise
  Deadline tell_again_ = Deadline::After(0);
  Deadline tell_known_again_ = Deadline::After(0);
  RankSet done_;  // they said that they are well
  int num_done_ = 0;
  bool registered_ = false;
};

// Any other rank: it speaks for its host, or follows the one that does.
class RendezvousMember : public Rendezvous {
 public:
  explicit RendezvousMember(const RendezvousSpec& spec)
      : Rendezvous(spec, kFind),
        connector_(&spec_.secret, {spec.domain, kRanks, spec.rank, spec.rank_size}) {}
  ~RendezvousMember() override;

  Status Complete(const Deadline& deadline, std::vector<Row>* rows) override;
  Status Look() override;
  Status Finish(const Status& own, const Deadline& deadline) override;

 private:
  enum class Role { kUndecided, kRelays, kFollows };
  // For whom this rank waits, and what the message of a time-out says: what it waits for, and why.
  struct Lack {
    std::string whom;
    std::string what;
    std::string why;
  };

  Status Wait();
  void ChooseRole();
  Status Find();
  Status Join();
  Status JoinRelay();
  Status SendRow(const SocketAddress& own);
  // Takes what has come from rank 0, or from the relay.
  Status Listen();
  Status Handle(const Frame& frame);
  Status TakeRelay(FieldReader* fields);
  Status Serve();
  Lack Lacks() const;
  Lack LacksRank0() const;
  Status TimedOut(const Deadline& deadline) const;
  std::string WhyNotJoined() const;
  // Ends first contact, and tells the others.
  void End(const Status& reason);
  Frame Farewell(const Status& reason) const;
  // The connection on which rank 0 hears this rank, and the one at its other end.
  Connection& to_rank_0() { return role_ == Role::kFollows ? to_relay_ : connector_.connection(); }
  std::string OtherEnd() const { return role_ == Role::kFollows ? relay_name_ : "rank 0"; }

  Role role_ = Role::kUndecided;
  std::optional<Deadline> decided_by_;
  HostRelay followers_;  // of this rank, if it speaks
  Connection to_relay_;  // if it follows
  std::string relay_name_;
  Lack relay_lacks_;
  SocketAddress meet_at_;   // rank 0's, as the job's port said
  std::string introduced_;  // where the job's port said that rank 0 listens
  Connector connector_;
  bool joined_ = false;   // this rank's row is on its way to rank 0
  bool welcome_ = false;  // this rank has all rows
  bool over_ = false;     // rank 0 has said that all are well, or why not
  bool heard_ = false;    // why first contact ends comes from elsewhere
  std::string missing_;   // by rank 0's last word
  std::string known_;     // of them, likewise
  std::vector<Row> rows_;
};

}  // namespace collops::control

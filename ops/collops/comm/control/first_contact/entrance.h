#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/control/first_contact/port_contact.h"
#include "collops/comm/control/group.h"
#include "collops/comm/placement/job.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"

namespace collops::control {

// How long the ranks and new processes that are there wait for each other, once their time-out has
// passed; and all in all.
constexpr double kMeetingS = 5.0;
double MeetingS(const Deadline& deadline);
// Longer than a rank needs to settle its messages, and the watchers to tell another host that it
// goes on.
constexpr double kHearS = 2.0;

// Errors that say what happened to others in a meeting, and not what this process lacks.
bool IsAboutOthers(ErrorCode code);

// Who a new process becomes, and where the enlarged group meets.
struct Invitation {
  uint64_t token = 0;  // names the meeting
  int rank = 0;
  int rank_size = 0;
  Tuning tuning;          // the group's
  bool on_hosts = false;  // the group is on several hosts: the rows of all ranks follow
  std::vector<Row> rows = {};

  std::string meeting() const { return Concat("grow ", token); }
  std::vector<Frame> frames() const;
  // Takes one more frame of it; false if that is of none.
  bool Take(const Frame& frame);
  bool complete() const {
    return rank > 0 && (!on_hosts || rows.size() == static_cast<size_t>(rank_size));
  }
};

// The name of the abstract socket at which new processes come to the group of `spec`.
Status FindEntrance(const GroupSpec& spec, std::string* name, JobIdentity* job);
// Of a group on several hosts: they ask for this domain at the job's port.
RendezvousSpec FindEntranceOfHosts(const GroupSpec& spec, const JobSecret& secret, int rank,
                                   const std::string& host, int port);

// Where rank 0 of a group waits for the processes that are to join it. Any process of this user may
// connect; what does not say hello is dropped. No function waits. One thread uses it.
class Entrance {
 public:
  // For so many processes of this host.
  Entrance(std::string name, int count) : name_(std::move(name)), count_(count) {}
  // For those of any host, who find it by the job's port at `place.host`, an address of this host.
  Entrance(const RendezvousSpec& place, int count);

  // One round: listens if the name is free, takes who comes, and reads what they say. An error if
  // no descriptor is left to listen, or to accept processes of this host; Hindrance() has what else
  // descriptors were missing for, as some may be free later.
  Status Look();
  // How many are there; and what to say of them, or of what keeps them away, in a message.
  int num_present() const { return static_cast<int>(guests_.size()); }
  std::string Hindrance() const;
  void AddPolled(std::vector<pollfd>* polled) const;

  // The first `count` that have come, in their order.
  std::vector<Row> FirstRows() const;
  // Invites them; `first` is for the first one.
  void Invite(Invitation first);
  // An error if one of them has ended or left since.
  Status CheckInvited() const;
  // Whether all of them have met the group.
  bool AllMet() const;
  // They go on as ranks.
  void Release();

 private:
  struct Guest {
    Connection connection;
    pid_t pid = 0;
    Row row;
    uint64_t invited = 0;  // the token of its last invitation
    uint64_t met = 0;
  };

  // Where those of all hosts come.
  struct HostsDoor {
    explicit HostsDoor(const RendezvousSpec& place)
        : spec(place), contact(&spec, kRegister), listener(place.secret) {}
    const RendezvousSpec spec;
    PortContact contact;
    JobListener listener;
  };

  Status Accept();
  Status AcceptOfHosts();
  void Hear(Guest* guest);
  // False: it is nobody who joins.
  bool Greet(Guest* guest, const Frame& frame);

  const std::string name_;
  const int count_;
  UniqueFd listener_;
  std::unique_ptr<HostsDoor> door_;  // null: on this host
  std::list<Guest> strangers_;       // they have said nothing yet
  std::list<Guest> guests_;          // in the order in which they came
  uint64_t token_ = 0;
  pid_t of_other_version_ = 0;
};

// A process that comes to the entrance of a group. No function waits.
class Entrant {
 public:
  explicit Entrant(std::string name) : name_(std::move(name)) {}
  // Where the group may be on several hosts: its rank 0 is at one of the places, or comes there.
  Entrant(std::string name, const std::vector<RendezvousSpec>& places);

  // One round: connects if it is not connected, and takes what has come. `invited`: `invitation`
  // was set. An error if it can never be invited there.
  Status Look(Invitation* invitation, bool* invited);
  // Whether the entrance has said something, or hung up.
  bool HasNews() const { return is_new_ || !connection_.alive() || connection_.HasArrived(); }
  bool connected() const { return connection_.alive(); }
  // Tells rank 0 that this process has met the group.
  void TellMet(const Invitation& invitation);
  // Whether rank 0 has said then that they go on; and whether they will not, as the entrance has
  // hung up or invited anew.
  Status LookForRelease(const Invitation& invitation, bool* released, bool* in_vain);
  // The other end's word that the group is complete, or that it begins again, ends it.
  void AwaitNews() const;
  // Why it has not reached a group on several hosts; empty: it did not look for one, or the group
  // may still come where it looks.
  std::string Failure() const;
  // Where this process accepts connections of other hosts, as its row says.
  std::unique_ptr<JobListener> TakeListener() { return std::move(listener_); }

 private:
  struct WayOfHosts {
    explicit WayOfHosts(const RendezvousSpec& place) : spec(place), contact(&spec, kFind) {}
    // Asks at the job's port where the entrance is, and goes there; again, if it is there no more.
    // `connection`: to it, once it is proven.
    Status Step(std::optional<Connection>* connection);
    void Forget();
    const RendezvousSpec spec;
    PortContact contact;
    std::optional<SocketAddress> where;  // as the job's port has said
    std::optional<Connector> connector;
    Status ended;  // why it leads nowhere
  };

  Status ConnectHere();
  Status ConnectToHosts();
  Status GreetHosts();
  Status Greet(const Row& row);
  Status Take();

  const std::string name_;
  std::list<WayOfHosts> ways_;
  std::unique_ptr<JobListener> listener_;
  Invitation coming_;      // so far
  bool is_new_ = false;    // it is complete, and Look() has not returned it
  uint64_t released_ = 0;  // the token of the meeting that stays
  Connection connection_;
  bool is_here_ = false;  // it is to a socket of this host, with a name of that index
  int index_ = 0;
  pid_t pid_ = 0;  // of the other end
};

}  // namespace collops::control

#pragma once

#include <sys/types.h>

#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/group.h"
#include "collops/comm/placement/job.h"
#include "collops/core/deadline.h"
#include "collops/core/status.h"
#include "collops/core/trace/log.h"

namespace collops::control {

// How long the ranks and new processes that are there wait for each other, once their time-out has
// passed; and all in all.
constexpr double kMeetingS = 5.0;
double MeetingS(const Deadline& deadline);

// Errors that say what happened to others in a meeting, and not what this process lacks.
bool IsAboutOthers(ErrorCode code);

// Logs once, after a while, what is awaited.
class Patience {
 public:
  template <typename Line>
  void Tell(const Line& line) {
    if (told_ || !silence_.Passed()) return;
    told_ = true;
    Log(LogLevel::kWarning, line());
  }

 private:
  static constexpr double kSilentS = 10.0;
  const Deadline silence_ = Deadline::After(kSilentS);
  bool told_ = false;
};

// Who a new process becomes, and where the enlarged group meets.
struct Invitation {
  uint64_t token = 0;  // names the meeting
  int rank = 0;
  int rank_size = 0;
  Tuning tuning;  // the group's

  std::string meeting() const { return Concat("grow ", token); }
  Frame frame() const;
  // False if it is none.
  static bool Read(const Frame& frame, Invitation* invitation);
};

// The name of the abstract socket at which new processes come to the group of `spec`.
Status FindEntrance(const GroupSpec& spec, std::string* name, JobIdentity* job);

// Where rank 0 of a group waits for the processes that are to join it. Any process of this user may
// connect; what does not say hello is dropped. No function waits. One thread uses it.
class Entrance {
 public:
  // For so many processes.
  Entrance(std::string name, int count) : name_(std::move(name)), count_(count) {}

  // One round: listens if the name is free, takes who comes, and reads what they say. An error if
  // no descriptor is left.
  Status Look();
  // How many are there; and what to say of them, or of what keeps them away, in a message.
  int num_present() const { return static_cast<int>(guests_.size()); }
  std::string Hindrance() const;
  void AddPolled(std::vector<pollfd>* polled) const;

  // Invites the first `count` that have come, in that order; `first` is for the first of them.
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
    uint64_t invited = 0;  // the token of its last invitation
    uint64_t met = 0;
  };

  Status Accept();
  void Hear(Guest* guest);
  // False: it is nobody who joins.
  bool Greet(Guest* guest, const Frame& frame);

  const std::string name_;
  const int count_;
  UniqueFd listener_;
  std::list<Guest> strangers_;  // they have said nothing yet
  std::list<Guest> guests_;     // in the order in which they came
  uint64_t token_ = 0;
  pid_t of_other_version_ = 0;
};

// A process that comes to the entrance of a group. No function waits.
class Entrant {
 public:
  explicit Entrant(std::string name) : name_(std::move(name)) {}

  // One round: connects if it is not connected, and takes what has come. `invited`: `invitation`
  // was set. An error if it can never be invited there.
  Status Look(Invitation* invitation, bool* invited);
  // Whether the entrance has said something, or hung up.
  bool HasNews() const { return !connection_.alive() || connection_.HasArrived(); }
  bool connected() const { return connection_.alive(); }
  // Tells rank 0 that this process has met the group.
  void TellMet(const Invitation& invitation);
  // The other end's word that the group is complete, or that it begins again, ends it.
  void AwaitNews() const;

 private:
  const std::string name_;
  Connection connection_;
  pid_t pid_ = 0;  // of the other end
};

}  // namespace collops::control

#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/meeting.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/rank_set.h"
#include "collops/core/process/cpu_place.h"

namespace collops::control {

// The name of the abstract socket at which the ranks of this job and domain meet.
std::string SocketName(const GroupSpec& spec, const JobIdentity& job);

// Which process (or thread, where ranks are threads) created a rank's Meeting, and when. A pid is
// not enough: in containers several ranks may have the same one.
struct Origin {
  using Clock = std::chrono::steady_clock;

  uint64_t maker = 0;  // a process, or where ranks are threads a thread
  // When a thread created it, which may create Meetings of several ranks before it gets a verdict.
  // A process has one Meeting at a time, so its next one is later than any verdict it got.
  Clock::time_point made = Clock::time_point::max();
};

// What a rank says to rank 0 first.
struct Hello {
  int rank = -1;
  int rank_size = 0;
  pid_t pid = 0;
  Origin origin;
  Tuning tuning;
  CpuPlace place;  // where it will touch its part of the segment

  Frame frame() const;
  // False if it is no valid hello.
  static bool Read(const Frame& frame, Hello* hello);
};

// What a peer's message says of it, and the descriptors that go with that.
Peer PeerFrom(pid_t pid, std::vector<UniqueFd> fds);
std::vector<int> DescriptorsOf(const Peer& peer);

// A rank of a host.
class LocalMeeting : public Meeting {
 public:
  LocalMeeting(const GroupSpec& spec, const JobIdentity& job, const SegmentShape& segment)
      : Meeting(spec), spec_(spec), job_(job), name_(SocketName(spec, job)), segment_(segment) {}

 protected:
  // Makes the Peer that describes this rank to the others, and the inbox behind its mailbox.
  Status MakeOwnPeer();
  // "comm_domain "dp" of job X (COLLOPS_JOB_ID)"
  std::string Describe() const;
  // "comm_domain "dp" (job X, from Y; set COLLOPS_JOB_ID to meet other processes)"
  std::string DescribePlace() const;
  // Says after a while, once, for whom this rank waits.
  void TellWaitingFor(const std::string& whom);

  const GroupSpec spec_;
  const JobIdentity job_;
  const std::string name_;
  const SegmentShape segment_;
  Peer self_;
  UniqueFd inbox_;
};

// Any rank but 0: a client of the leader.
class MeetingMember : public LocalMeeting {
 public:
  MeetingMember(const GroupSpec& spec, const JobIdentity& job, const SegmentShape& segment);
  ~MeetingMember() override;

  void Begin() override { static_cast<void>(TryConnect()); }
  Status Complete(const Deadline& deadline, Group* group) override;
  bool TryComplete(Group* group) override;
  void Cancel(const Status& reason) override;

  // Connects and sends a hello; Ok without a connection if nobody listens yet.
  Status TryConnect();
  bool connected() const { return leader_.alive(); }
  pid_t leader_pid() const { return leader_pid_; }
  // Waits a moment for the leader's word; returns the error in its verdict.
  Status Listen();

 private:
  Status Wait(Group* group);
  Status Handle(const Frame& frame, std::vector<UniqueFd> fds, Group* group);
  Status TakeVerdict(const Frame& frame);
  Status OtherVersion() const;
  Status LeaderHungUp();
  // The ranks that have not arrived yet, for messages.
  std::string Missing() const;
  Status TimedOut(const Deadline& deadline) const;

  Origin origin_;
  Connection leader_;
  pid_t leader_pid_ = 0;
  UniqueFd leader_process_;  // a pidfd, if the leader's pid is visible here
  std::string missing_;      // by the leader's last word
  bool welcome_ = false;
};

// Rank 0: listens, checks that the ranks fit together, and sends every rank to every other one.
class MeetingLeader : public LocalMeeting {
 public:
  MeetingLeader(const GroupSpec& spec, const JobIdentity& job, const SegmentShape& segment,
                bool doorbell);
  ~MeetingLeader() override;

  void Begin() override;
  Status Complete(const Deadline& deadline, Group* group) override;
  bool TryComplete(Group*) override { return false; }
  void Cancel(const Status& reason) override;

 private:
  struct Client {
    Connection connection;
    pid_t pid = 0;
    int rank = -1;         // -1: not admitted
    bool greeted = false;  // its hello has arrived
    Hello hello;
    Peer peer;
  };
  struct Message {
    Frame frame;
    std::vector<int> descriptors;
  };

  Status Gather(const Deadline& deadline);
  Status Challenge(const Deadline& deadline);
  void DropStrangers();
  Status AcceptClients();
  Status ReadFrom(Client* client);
  bool ReadHello(Client* client, const Frame& frame);
  Status Greet(Client* client, const Frame& frame, std::vector<UniqueFd> fds);
  Status Admit(Client* client);
  Status TakeLeave(Client* client, const Frame& frame);
  void TellProgress();
  void AnswerLateRanks(const Status& reason);
  void SendReason(Client* client, const Status& reason);
  Status Introduce(const Deadline& deadline, Group* group);
  Status SendToAll(const std::vector<Message>& messages, const Deadline& deadline);

  const bool doorbell_;
  UniqueFd listener_;
  UniqueFd spare_;  // reserved: closed to accept a client when no descriptor is left
  std::optional<Deadline> unanswered_;  // while another process owns the name and does not answer
  std::vector<Client> clients_;
  RankSet present_;
  int num_shown_ = 0;                    // how many were there when the others heard of it last
  RankSet left_;                         // ranks that sent a reason and left
  RankSet informed_;                     // ranks that were told why first contact failed
  std::vector<Origin> informed_makers_;  // the Origins of the clients in informed_
};

}  // namespace collops::control

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collops/comm/control/first_contact/local_messages.h"
#include "collops/comm/control/first_contact/meeting.h"

namespace collops::control {

// Any rank but 0: a client of the leader.
class MeetingMember : public Meeting {
 public:
  MeetingMember(const GroupSpec& spec, const JobIdentity& job, std::string name,
                int64_t segment_bytes)
      : spec_(spec),
        job_(job),
        name_(std::move(name)),
        segment_bytes_(segment_bytes),
        origin_(MakeOrigin(spec.comm_mode)) {}
  ~MeetingMember() override;

  void Begin() override;
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group* group) override;
  void Cancel(const Status& reason) override;

  // Connects and sends a hello; Ok without a connection if nobody listens yet.
  Status TryConnect();
  bool connected() const { return socket_.valid(); }
  pid_t leader_pid() const { return leader_pid_; }
  // Waits up to kMeetingPollMs for a message of the leader; returns the error in its verdict.
  Status Listen();

 private:
  Status Wait(Group* group);
  Status Handle(const MeetingMessage& message, std::vector<UniqueFd> fds, Group* group);
  bool Concerns(const MeetingMessage& verdict) const;
  Status OtherVersion() const;
  Status LeaderHungUp();
  // The ranks that have not arrived yet, for messages.
  std::string Missing() const;
  Status TimedOut(const Deadline& deadline) const;

  GroupSpec spec_;
  JobIdentity job_;
  std::string name_;
  int64_t segment_bytes_;
  Origin origin_;
  Peer self_;
  UniqueFd inbox_;
  UniqueFd socket_;
  pid_t leader_pid_ = 0;
  UniqueFd leader_process_;         // a pidfd, if the leader's pid is visible here
  std::bitset<kMaxRanks> present_;  // ranks that have arrived, by the leader's last message
  bool welcome_ = false;
};

// Rank 0: listens, checks that the ranks fit together, and sends every rank to every other one.
class MeetingLeader : public Meeting {
 public:
  MeetingLeader(const GroupSpec& spec, const JobIdentity& job, std::string name,
                int64_t segment_bytes, bool doorbell)
      : spec_(spec),
        job_(job),
        name_(std::move(name)),
        segment_bytes_(segment_bytes),
        doorbell_(doorbell) {}
  ~MeetingLeader() override;

  void Begin() override;
  Status Complete(const Deadline& deadline, Group* group) override;
  bool Settle(Group*) override { return false; }
  void Cancel(const Status& reason) override;

 private:
  struct Client {
    UniqueFd socket;
    int rank = -1;      // -1: not admitted
    int claim = -1;     // the rank in its hello
    int rank_size = 0;  // the size in its hello; 0: no hello has arrived yet
    Origin origin;
    Peer peer;
  };

  Status Gather(const Deadline& deadline);
  Status Challenge(const Deadline& deadline);
  void DropStrangers();
  Status AcceptClients();
  Status ReadFrom(Client* client);
  Status Greet(Client* client, const MeetingMessage& hello, std::vector<UniqueFd> fds);
  Status Admit(Client* client, const MeetingMessage& hello);
  Status Leaves(Client* client, const MeetingMessage& message);
  void TellProgress();
  void AnswerLateRanks(const Status& reason);
  void SendReason(Client* client, const Status& reason);
  bool ReadHello(Client* client);
  Status Introduce(const Deadline& deadline, Group* group);
  Status SendTo(Client* client, const MeetingMessage& message, const std::vector<int>& fds,
                const Deadline& deadline);

  GroupSpec spec_;
  JobIdentity job_;
  std::string name_;
  int64_t segment_bytes_;
  bool doorbell_;
  UniqueFd listener_;
  UniqueFd spare_;  // reserved: closed to accept a client when no descriptor is left
  std::optional<Deadline> unanswered_;  // while another process owns the name and does not answer
  Peer self_;
  UniqueFd inbox_;
  std::vector<Client> clients_;
  std::bitset<kMaxRanks> present_;
  std::bitset<kMaxRanks> told_;
  std::bitset<kMaxRanks> left_;         // ranks that sent a reason and left
  std::bitset<kMaxRanks> told_reason_;  // ranks that were told why first contact failed
  std::vector<Origin> told_makers_;     // the Origins of the clients in told_reason_
};

}  // namespace collops::control

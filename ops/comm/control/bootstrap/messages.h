#pragma once

#include <bitset>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator_spec.h"
#include "comm/control/board.h"
#include "comm/control/bootstrap/group.h"
#include "comm/control/bootstrap/socket.h"
#include "comm/placement/job.h"

namespace collops::control {

// How often a waiting rank looks at its deadline and for Ctrl-C.
constexpr int kMeetingPollMs = 50;

// The abstract name of the socket under which the ranks of this job and domain meet.
std::string SocketName(const CommunicatorSpec& spec, const JobIdentity& job);

enum class MessageType : int32_t {
  kHello = 1,     // member -> leader: who I am; descriptors: my mailbox, my pidfd if there is one
  kProgress = 2,  // leader -> member: who has come so far
  kPeer = 3,      // leader -> member: one rank; descriptors: its mailbox, its pidfd
  kWelcome = 4,   // leader -> member: all have come; descriptor: the segment
  kVerdict = 5,   // either way: it ends here, `code` and `text` say why
};

// Who made a rank's part of a meeting, and when. A pid does not tell makers apart: in containers
// several ranks may have the same one.
struct Origin {
  using Clock = std::chrono::steady_clock;

  uint64_t maker = 0;  // a process, or where ranks are threads a thread
  // A process has one part at a time: always after what it was told. A thread may make those of
  // several ranks before it hears of any.
  Clock::time_point made = Clock::time_point::max();
};

// The caller's, of a part that it makes now.
Origin MakeOrigin(CommMode mode);

struct MeetingMessage {
  // Changes with the board; what a backend adds to the segment shows in its size.
  static constexpr uint32_t kMagic =
      0x636f6c33 + (Agreement::kMaxWords << 16) + (sizeof(Member) << 4) + kShareBytes;

  uint32_t magic = kMagic;
  MessageType type = MessageType::kHello;
  int32_t rank = 0;
  int32_t rank_size = 0;
  int32_t pid = 0;
  int32_t code = 0;
  int64_t segment_bytes = 0;
  Origin origin;  // of a hello
  std::bitset<kMaxRanks> present;
  char text[kReasonBytes] = {};
};

Transfer SendMessage(int socket, const MeetingMessage& message, const std::vector<int>& fds);

// Says a verdict; a closed socket or a full one is not worth an error here.
// `rank_size`: of the only groups that it concerns; 0: whatever the guest is.
void SendVerdict(int socket, const Status& reason, int rank_size = 0);
// Never Ok, whatever the message is.
Status VerdictOf(const MeetingMessage& message);

// The verdict that a rank left in its mailbox when it failed during first contact, after it had
// been introduced; Ok where there is none. Stays there for the other peers.
Status LastWord(int mailbox);

// kDone only for a whole message of ours; kNoDescriptors for one without what was in it.
Transfer ReceiveMessage(int socket, MeetingMessage* message, std::vector<UniqueFd>* fds);

// This rank as its peers will know it, and the inbox behind its mailbox.
Status MakeOwnPeer(CommMode mode, Peer* peer, UniqueFd* inbox);
std::vector<int> Descriptors(const Peer& peer);
Peer PeerFrom(const MeetingMessage& message, std::vector<UniqueFd> fds);

// "comm_domain "dp" of job X (COLLOPS_JOB_ID)"
std::string Describe(const CommunicatorSpec& spec, const JobIdentity& job);
// "comm_domain "dp" (job X, from Y; set COLLOPS_JOB_ID to meet other processes)"
std::string DescribePlace(const CommunicatorSpec& spec, const JobIdentity& job);
// "collops: rank 0: waiting for `whom` (job X, from Y; ...)", with the domain if it has a name.
std::string WaitingLine(const CommunicatorSpec& spec, const JobIdentity& job,
                        const std::string& whom);
// "rank 2 of 3", "ranks 1, 3 of 4"
std::string RanksMissing(const std::bitset<kMaxRanks>& present, int rank_size);

// Sleeps until one of the sockets has something or kMeetingPollMs have gone by.
void PollSockets(const std::vector<int>& sockets);

}  // namespace collops::control

#pragma once

#include <sys/types.h>

#include <bitset>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/descriptor.h"
#include "collops/comm/control/group.h"
#include "collops/comm/placement/job.h"
#include "collops/core/status.h"

namespace collops::control {

// Sockets of first contact. No function here waits: every socket is non-blocking.

// What a socket carries: messages, each of which arrives whole, with its descriptors, or bytes.
enum class Carries { kMessages, kBytes };

// A listening socket with a name in the abstract namespace, which ends with its process. Not valid
// if another socket listens under that name.
UniqueFd Listen(const std::string& name, Carries carries = Carries::kMessages);

// Whether a socket has that name, also one that does not listen.
bool IsTaken(const std::string& name);

// Not valid if no socket listens there yet.
UniqueFd ConnectTo(const std::string& name, Carries carries = Carries::kMessages);

// Not valid if no client waits to be accepted.
UniqueFd Accept(const UniqueFd& listener);

// Two connected sockets.
Status SocketPair(UniqueFd* first, UniqueFd* second);

// The process at the other end, and its user; false unless that user runs this process, too.
bool SameUser(const UniqueFd& socket, pid_t* pid, uid_t* uid);

// A pidfd, readable when the process has ended; not valid if the pid is not visible here.
UniqueFd OpenProcess(pid_t pid);
bool Readable(int fd);

// kNoDescriptors: a message arrived, but this process may not open its descriptors. kClosed also
// means a message with more descriptors than this library ever sends.
enum class SocketResult { kDone, kWouldBlock, kClosed, kNoDescriptors };

// Whether the last call failed because no descriptor was left; TooManyFiles() says what to do.
bool OutOfDescriptors();
Status TooManyFiles();

// Sends `bytes` of `data` and the descriptors. kWouldBlock: nothing was sent, try again later.
SocketResult Send(int socket, const void* data, size_t bytes, const std::vector<int>& fds);

// Receives one message of at most `bytes`; `received` is its size.
SocketResult Receive(int socket, void* data, size_t bytes, size_t* received,
                     std::vector<UniqueFd>* fds);

// How often a waiting rank checks its deadline and looks for Ctrl-C.
constexpr int kMeetingPollMs = 50;

// The name of the abstract socket at which the ranks of this job and domain meet.
std::string SocketName(const GroupSpec& spec, const JobIdentity& job);

enum class MessageType : int32_t {
  kHello = 1,         // client -> leader: rank, size; descriptors: mailbox, pidfd if there is one
  kProgress = 2,      // leader -> client: which ranks have arrived so far
  kPeer = 3,          // leader -> client: one rank; descriptors: its mailbox, its pidfd
  kWelcome = 4,       // leader -> client: all ranks have arrived; descriptor: the segment
  kVerdict = 5,       // both directions: first contact ends with `code` and `text`
  kOtherVersion = 6,  // never sent: what ReceiveMessage() makes of a message of another version
};

// Which process (or thread, where ranks are threads) created a rank's Meeting, and when. A pid is
// not enough: in containers several ranks may have the same one.
struct Origin {
  using Clock = std::chrono::steady_clock;

  uint64_t maker = 0;  // a process, or where ranks are threads a thread
  // When a thread created it, which may create Meetings of several ranks before it gets a verdict.
  // A process has one Meeting at a time, so its next one is later than any verdict it got.
  Clock::time_point made = Clock::time_point::max();
};

// The Origin of a Meeting that the caller creates now.
Origin MakeOrigin(CommMode mode);

struct MeetingMessage {
  // The first word of a message of any version, and the second.
  static constexpr uint32_t kMagic = 0x636f6c6c;
  // Changes with the layout of the board; what a backend adds to the segment changes its size.
  static constexpr uint32_t kVersion =
      6 + (Agreement::kMaxWords << 16) + (sizeof(Member) << 4) + kShareBytes;

  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  MessageType type = MessageType::kHello;
  int32_t rank = 0;
  int32_t rank_size = 0;
  int32_t pid = 0;
  int32_t code = 0;
  int64_t segment_bytes = 0;
  Origin origin;  // only in a hello
  Tuning tuning;  // only in a hello
  std::bitset<kMaxRanks> present;
  char text[kReasonBytes] = {};
};

SocketResult SendMessage(int socket, const MeetingMessage& message, const std::vector<int>& fds);

// Sends a verdict and ignores errors: the socket may be closed or full. `rank_size`: only groups of
// this size are concerned; 0: groups of any size.
void SendVerdict(int socket, const Status& reason, int rank_size = 0);
// The error in a verdict; an error of its own, never Ok, for a message that is no verdict.
Status VerdictOf(const MeetingMessage& message);

// The verdict that a rank left in its mailbox when it failed during first contact, after its peers
// had got that mailbox; Ok if there is none. It stays there for the other peers.
Status VerdictInMailbox(int mailbox);

// kDone only for a whole and valid message, or one of another version (kOtherVersion), of which
// nothing else is valid; kNoDescriptors if its descriptors could not be taken.
SocketResult ReceiveMessage(int socket, MeetingMessage* message, std::vector<UniqueFd>* fds);

// Makes the Peer that describes this rank to the others, and the inbox behind its mailbox.
Status MakeOwnPeer(CommMode mode, Peer* peer, UniqueFd* inbox);
std::vector<int> Descriptors(const Peer& peer);
Peer PeerFrom(const MeetingMessage& message, std::vector<UniqueFd> fds);

// "comm_domain "dp" of job X (COLLOPS_JOB_ID)"
std::string Describe(const GroupSpec& spec, const JobIdentity& job);
// "comm_domain "dp" (job X, from Y; set COLLOPS_JOB_ID to meet other processes)"
std::string DescribePlace(const GroupSpec& spec, const JobIdentity& job);
// "collops: rank 0: waiting for `whom` (job X, from Y; ...)", with the domain if it has a name.
std::string WaitingLine(const GroupSpec& spec, const JobIdentity& job, const std::string& whom);
// "rank 2 of 3", "ranks 1, 3 of 4"
std::string RanksMissing(const std::bitset<kMaxRanks>& present, int rank_size);

// Sleeps until one of the sockets is readable, at most kMeetingPollMs.
void PollSockets(const std::vector<int>& sockets);

}  // namespace collops::control

#include "collops/comm/control/first_contact/entrance.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "collops/comm/control/first_contact/local_meeting.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/comm/placement/placement.h"

namespace collops::control {
namespace {

// Those that have said nothing. Each of the new processes may be one for a moment.
constexpr size_t kMostStrangers = kMaxRanks;
constexpr auto kConnectAgain = std::chrono::milliseconds(5);

Status VersionsDiffer(pid_t pid, pid_t other) {
  return Error(ERROR_RANK_MISMATCH, "process ", pid, " and process ", other,
               " run different versions of collops: install one");
}

FieldWriter MetMessage(uint64_t token) {
  FieldWriter fields = LocalMessageOf(MessageKind::kDone);
  fields.Number(token);
  return fields;
}

}  // namespace

double MeetingS(const Deadline& deadline) {
  return std::max(deadline.RemainingS(), kMeetingS);
}

bool IsAboutOthers(ErrorCode code) {
  return code == ERROR_ABORTED || code == ERROR_PEER_LOST || code == ERROR_TIMEOUT;
}

Frame Invitation::frame() const {
  FieldWriter fields = LocalMessageOf(MessageKind::kInvitation);
  fields.Number(token).Number(static_cast<uint64_t>(rank));
  fields.Number(static_cast<uint64_t>(rank_size));
  for (const TunedSize& row : TunedSizes()) fields.Number(static_cast<uint64_t>(tuning.*row.size));
  return fields.frame();
}

bool Invitation::Read(const Frame& frame, Invitation* invitation) {
  FieldReader fields(frame);
  if (ReadLocalKind(&fields) != MessageKind::kInvitation) return false;
  invitation->token = fields.Number();
  invitation->rank = fields.Int(1, kMaxGroupRanks - 1);
  invitation->rank_size = fields.Int(invitation->rank + 1, kMaxGroupRanks);
  for (const TunedSize& row : TunedSizes()) {
    invitation->tuning.*row.size = static_cast<int64_t>(fields.Number());
  }
  return fields.Done();
}

Status FindEntrance(const GroupSpec& spec, std::string* name, JobIdentity* job) {
  const bool threads = spec.comm_mode == COMM_MULTI_THREAD;
  std::string digest = spec.table_digest;
  if (digest.empty() && !threads) COLLOPS_RETURN_IF_ERROR(FindJobDigest(&digest));
  COLLOPS_RETURN_IF_ERROR(FindMeetingPlace(threads, spec.job_id, digest, job));
  GroupSpec meeting = spec;
  meeting.meeting = "join";
  *name = SocketName(meeting, *job);
  return Ok();
}

Status Entrance::Look() {
  if (!listener_.valid()) listener_ = Listen(name_);
  if (listener_.valid()) COLLOPS_RETURN_IF_ERROR(Accept());
  for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
    Frame frame;
    const bool spoke = stranger->connection.Receive(&frame);
    const auto next = std::next(stranger);
    if (spoke && Greet(&*stranger, frame)) {
      guests_.splice(guests_.end(), strangers_, stranger);
    } else if (spoke || !stranger->connection.alive()) {
      strangers_.erase(stranger);
    }
    stranger = next;
  }
  for (Guest& guest : guests_) Hear(&guest);
  guests_.remove_if([](const Guest& guest) { return !guest.connection.alive(); });
  return Ok();
}

Status Entrance::Accept() {
  // A flood of strangers does not keep this thread from those who are there.
  for (int i = 0; i < kMaxRanks; ++i) {
    UniqueFd socket = control::Accept(listener_);
    if (!socket.valid()) return OutOfDescriptors() ? TooManyFiles() : Ok();
    Guest stranger;
    uid_t uid = 0;
    if (!SameUser(socket, &stranger.pid, &uid)) continue;
    stranger.connection = Connection(std::move(socket), Concat("process ", stranger.pid));
    stranger.connection.LimitFrames(kMostLocalFrameBytes);
    strangers_.push_back(std::move(stranger));
    // One that is dropped before it could speak comes again.
    if (strangers_.size() > kMostStrangers) strangers_.pop_front();
  }
  return Ok();
}

bool Entrance::Greet(Guest* guest, const Frame& frame) {
  FieldReader fields(frame);
  const MessageKind kind = ReadLocalKind(&fields);
  if (kind == MessageKind::kOtherVersion) {
    of_other_version_ = guest->pid;
    const Status reason = VersionsDiffer(getpid(), guest->pid);
    static_cast<void>(guest->connection.Send(LocalVerdictFrame(reason)));
  }
  if (kind != MessageKind::kJoin) return false;
  guest->pid = fields.Int(0, std::numeric_limits<int>::max());
  return fields.Done();
}

// After its hello it says which meeting it has met in, and nothing else.
void Entrance::Hear(Guest* guest) {
  Frame frame;
  while (guest->connection.Receive(&frame)) {
    FieldReader fields(frame);
    const bool met = ReadLocalKind(&fields) == MessageKind::kDone;
    if (met) guest->met = fields.Number();
    if (!met || !fields.Done()) guest->connection = Connection();
  }
}

std::string Entrance::Hindrance() const {
  if (!listener_.valid()) {
    return "; another process on this host has taken the socket of this job and comm_domain";
  }
  return of_other_version_ == 0
             ? ""
             : Concat("; process ", of_other_version_, " came with another version of collops");
}

void Entrance::AddPolled(std::vector<pollfd>* polled) const {
  if (listener_.valid()) polled->push_back({listener_.get(), POLLIN, 0});
  for (const Guest& guest : strangers_) polled->push_back(guest.connection.Polled());
  for (const Guest& guest : guests_) polled->push_back(guest.connection.Polled());
}

void Entrance::Invite(Invitation first) {
  token_ = first.token;
  int left = count_;
  for (Guest& guest : guests_) {
    if (left-- == 0) break;
    guest.invited = token_;
    // It reads each invitation before the next one can come, so there is room.
    if (!guest.connection.Send(first.frame())) guest.connection = Connection();
    ++first.rank;
  }
}

Status Entrance::CheckInvited() const {
  const auto there = [this](const Guest& guest) {
    return guest.invited == token_ && guest.connection.alive();
  };
  COLLOPS_CHECK_ARG(std::count_if(guests_.begin(), guests_.end(), there) == count_, ERROR_PEER_LOST,
                    "a new process has ended");
  return Ok();
}

bool Entrance::AllMet() const {
  const auto met = [this](const Guest& guest) { return guest.met == token_; };
  return std::count_if(guests_.begin(), guests_.end(), met) == count_;
}

void Entrance::Release() {
  for (Guest& guest : guests_) {
    if (guest.invited == token_) {
      static_cast<void>(guest.connection.Send(MetMessage(token_).frame()));
    }
  }
}

Status Entrant::Look(Invitation* invitation, bool* invited) {
  *invited = false;
  if (!connection_.alive()) {
    UniqueFd socket = ConnectTo(name_);
    if (!socket.valid()) {
      if (OutOfDescriptors()) return TooManyFiles();
      std::this_thread::sleep_for(kConnectAgain);
      return Ok();
    }
    uid_t uid = 0;
    COLLOPS_CHECK_ARG(SameUser(socket, &pid_, &uid), ERROR_PEER_LOST, "process ", pid_,
                      " of another user (uid ", uid,
                      ") listens under the name of this group: end it, or set another "
                      "COLLOPS_JOB_ID in all its processes");
    connection_ = Connection(std::move(socket), Concat("process ", pid_));
    connection_.LimitFrames(kMostLocalFrameBytes);
    FieldWriter hello = LocalMessageOf(MessageKind::kJoin);
    hello.Number(static_cast<uint64_t>(getpid()));
    if (!connection_.Send(hello.frame())) connection_ = Connection();
  }
  Frame frame;
  while (connection_.Receive(&frame)) {
    FieldReader fields(frame);
    const MessageKind kind = ReadLocalKind(&fields);
    const bool fits = kind != MessageKind::kOtherVersion && kind != MessageKind::kNone;
    COLLOPS_CHECK_ARG(fits, ERROR_RANK_MISMATCH, VersionsDiffer(pid_, getpid()).message());
    Status verdict;
    if (ReadLocalVerdict(frame, &verdict)) return verdict;
    // Of several only the last one counts.
    if (Invitation::Read(frame, invitation)) *invited = true;
  }
  return Ok();
}

void Entrant::TellMet(const Invitation& invitation) {
  if (!connection_.Send(MetMessage(invitation.token).frame())) connection_ = Connection();
}

void Entrant::AwaitNews() const {
  AwaitReady({connection_.Polled()});
}

}  // namespace collops::control

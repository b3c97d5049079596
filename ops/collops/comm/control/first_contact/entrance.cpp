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
constexpr const char* kJoinPurpose = "join";
// A rank 0 that was stopped, and then left out by the others, still has its name: the next one
// takes another, and a new process goes to the last that is there.
constexpr int kNames = 4;
std::string NameInTurn(const std::string& name, int index) {
  return index == 0 ? name : Concat(name, "-", index);
}
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

std::vector<Frame> Invitation::frames() const {
  FieldWriter fields = LocalMessageOf(MessageKind::kInvitation);
  fields.Number(token).Number(static_cast<uint64_t>(rank));
  fields.Number(static_cast<uint64_t>(rank_size)).Number(on_hosts ? 1 : 0);
  for (const TunedSize& size : TunedSizes()) {
    fields.Number(static_cast<uint64_t>(tuning.*size.size));
  }
  std::vector<Frame> frames = {fields.frame()};
  for (const Row& row : rows) {
    FieldWriter of_row = LocalMessageOf(MessageKind::kRow);
    row.Write(&of_row);
    frames.push_back(of_row.frame());
  }
  return frames;
}

bool Invitation::Take(const Frame& frame) {
  FieldReader fields(frame);
  const MessageKind kind = ReadLocalKind(&fields);
  if (kind == MessageKind::kRow && on_hosts && !complete()) {
    rows.push_back(Row::Read(&fields));
    return fields.Done();
  }
  if (kind != MessageKind::kInvitation) return false;
  *this = {};
  token = fields.Number();
  rank = fields.Int(1, kMaxGroupRanks - 1);
  rank_size = fields.Int(rank + 1, kMaxGroupRanks);
  on_hosts = fields.Int(0, 1) == 1;
  constexpr int64_t kMostBytes = int64_t{1} << 40;
  bool sound = true;
  for (const TunedSize& size : TunedSizes()) {
    tuning.*size.size = static_cast<int64_t>(fields.Number());
    sound = sound && tuning.*size.size >= 0 && tuning.*size.size <= kMostBytes;
  }
  if (!sound) *this = {};
  return sound && fields.Done();
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

RendezvousSpec FindEntranceOfHosts(const GroupSpec& spec, const JobSecret& secret, int rank,
                                   const std::string& host, int port) {
  RendezvousSpec place;
  place.domain = Concat(spec.backend, "/", spec.comm_domain, "/", kJoinPurpose);
  place.rank = rank;
  place.rank_size = 2;
  place.host = host;
  place.port = port;
  // The process that had the port may be gone.
  place.has_port = rank == 0;
  place.secret = secret;
  return place;
}

Entrance::Entrance(const RendezvousSpec& place, int count)
    : count_(count), door_(std::make_unique<HostsDoor>(place)) {}

Status Entrance::Look() {
  if (door_ != nullptr) {
    COLLOPS_RETURN_IF_ERROR(AcceptOfHosts());
  } else {
    for (int i = 0; i < kNames && !listener_.valid(); ++i) {
      listener_ = Listen(NameInTurn(name_, i));
      if (!listener_.valid() && OutOfDescriptors()) return TooManyFiles();
    }
    if (listener_.valid()) COLLOPS_RETURN_IF_ERROR(Accept());
  }
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

Status Entrance::AcceptOfHosts() {
  std::optional<PortMessage> answer;
  const auto listen = [this](SocketAddress own, PortMessage* request) {
    own.set_port(0);
    if (!door_->listener.open()) COLLOPS_RETURN_IF_ERROR(door_->listener.Open(own));
    request->address = door_->listener.address().Host();
    request->port = door_->listener.address().port();
    return Ok();
  };
  COLLOPS_RETURN_IF_ERROR(door_->contact.Ask(listen, &answer));
  std::vector<Proven> proven;
  while (door_->listener.open() && door_->listener.Next(&proven)) continue;
  for (Proven& one : proven) {
    if (one.claim.domain != door_->spec.domain || one.claim.purpose != kJoinPurpose) continue;
    Guest stranger;
    stranger.connection = std::move(one.connection);
    stranger.connection.LimitFrames(kMostLocalFrameBytes);
    strangers_.push_back(std::move(stranger));
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
  guest->row = Row::Read(&fields);
  guest->pid = guest->row.pid;
  return fields.Done();
}

// After its hello it says which meeting it has met in, and nothing else.
void Entrance::Hear(Guest* guest) {
  Frame frame;
  for (int i = 0; i < kMostHeard && guest->connection.Receive(&frame); ++i) {
    FieldReader fields(frame);
    const bool met = ReadLocalKind(&fields) == MessageKind::kDone;
    if (met) guest->met = fields.Number();
    if (!met || !fields.Done()) guest->connection = Connection();
  }
}

std::string Entrance::Hindrance() const {
  if (door_ != nullptr) {
    const Status refused = door_->listener.last_refusal();
    if (!refused.ok()) return Concat("; the last one turned away: ", refused.message());
    const std::string why = door_->contact.Failure();
    return door_->contact.proven() || why.empty()
               ? ""
               : Concat("; rank 0 did not reach the job's port, where they look for it: ", why);
  }
  if (!listener_.valid()) {
    return "; other processes on this host have taken the sockets of this job and comm_domain";
  }
  return of_other_version_ == 0
             ? ""
             : Concat("; process ", of_other_version_, " came with another version of collops");
}

void Entrance::AddPolled(std::vector<pollfd>* polled) const {
  if (listener_.valid()) polled->push_back({listener_.get(), POLLIN, 0});
  if (door_ != nullptr) {
    door_->contact.AddPolled(polled);
    door_->listener.AddPolled(polled);
  }
  for (const Guest& guest : strangers_) polled->push_back(guest.connection.Polled());
  for (const Guest& guest : guests_) polled->push_back(guest.connection.Polled());
}

std::vector<Row> Entrance::FirstRows() const {
  std::vector<Row> rows;
  for (const Guest& guest : guests_) {
    if (rows.size() < static_cast<size_t>(count_)) rows.push_back(guest.row);
  }
  return rows;
}

void Entrance::Invite(Invitation first) {
  token_ = first.token;
  int left = count_;
  for (Guest& guest : guests_) {
    if (left-- == 0) break;
    guest.invited = token_;
    // It reads each invitation before the next one can come, so there is room.
    for (const Frame& frame : first.frames()) {
      if (!guest.connection.Send(frame)) guest.connection = Connection();
    }
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

Entrant::Entrant(std::string name, const std::vector<RendezvousSpec>& places)
    : name_(std::move(name)) {
  for (const RendezvousSpec& place : places) ways_.emplace_back(place);
}

// Also if it is connected: to the last name at which somebody listens now.
Status Entrant::ConnectHere() {
  const bool is_connected = connection_.alive();
  UniqueFd socket;
  int index = kNames;
  while (!socket.valid() && --index > (is_connected ? index_ : -1)) {
    socket = ConnectTo(NameInTurn(name_, index));
  }
  if (!socket.valid()) return !is_connected && OutOfDescriptors() ? TooManyFiles() : Ok();
  index_ = index;
  uid_t uid = 0;
  COLLOPS_CHECK_ARG(SameUser(socket, &pid_, &uid), ERROR_PEER_LOST, "process ", pid_,
                    " of another user (uid ", uid,
                    ") listens under the name of this group: end it, or set another "
                    "COLLOPS_JOB_ID in all its processes");
  connection_ = Connection(std::move(socket), Concat("process ", pid_));
  is_here_ = true;
  return Greet({});
}

Status Entrant::WayOfHosts::Step(std::optional<Connection>* connection) {
  if (!where) {
    std::optional<PortMessage> answer;
    COLLOPS_RETURN_IF_ERROR(contact.Ask({}, &answer));
    SocketAddress said;
    if (!answer || !ParseNumeric(answer->address, answer->port, &said)) return Ok();
    contact.Finish(Deadline::After(0));
    where = said;
    connector.emplace(&spec.secret, Claim{spec.domain, kJoinPurpose, spec.rank, spec.rank_size});
  }
  COLLOPS_RETURN_IF_ERROR(connector->Step(*where));
  if (connector->TakeFailed()) {
    where.reset();
  } else if (connector->proven()) {
    *connection = std::move(connector->connection());
  }
  return Ok();
}

void Entrant::WayOfHosts::Forget() {
  contact.Finish(Deadline::After(0));
  where.reset();
  connector.reset();
}

// Of the places, others may be another job's, or of hosts that are lost.
Status Entrant::ConnectToHosts() {
  std::optional<Connection> made;
  bool any_left = false;
  for (WayOfHosts& way : ways_) {
    if (!way.ended.ok() || made) continue;
    way.ended = way.Step(&made);
    any_left = any_left || way.ended.ok();
  }
  if (!any_left) return ways_.front().ended;
  if (!made) return Ok();
  connection_ = std::move(*made);
  is_here_ = false;
  for (WayOfHosts& way : ways_) way.Forget();
  return GreetHosts();
}

Status Entrant::GreetHosts() {
  SocketAddress own = connection_.own_address();
  own.set_port(0);
  if (listener_ == nullptr) listener_ = std::make_unique<JobListener>(ways_.front().spec.secret);
  if (!listener_->open()) COLLOPS_RETURN_IF_ERROR(listener_->Open(own));
  Row row;
  row.host = HostIdentity().substr(0, Row::kMostHostBytes);
  row.address = listener_->address().Host();
  row.port = listener_->address().port();
  return Greet(row);
}

Status Entrant::Greet(const Row& row) {
  connection_.LimitFrames(kMostLocalFrameBytes);
  coming_ = {};
  is_new_ = false;
  FieldWriter hello = LocalMessageOf(MessageKind::kJoin);
  Row own = row;
  own.pid = getpid();
  own.Write(&hello);
  if (!connection_.Send(hello.frame())) connection_ = Connection();
  return Ok();
}

Status Entrant::Look(Invitation* invitation, bool* invited) {
  *invited = false;
  if (!connection_.alive() || (is_here_ && !HasNews())) COLLOPS_RETURN_IF_ERROR(ConnectHere());
  if (!connection_.alive() && !ways_.empty()) COLLOPS_RETURN_IF_ERROR(ConnectToHosts());
  if (!connection_.alive()) {
    std::this_thread::sleep_for(kConnectAgain);
    return Ok();
  }
  COLLOPS_RETURN_IF_ERROR(Take());
  *invited = std::exchange(is_new_, false);
  if (*invited) *invitation = coming_;
  return Ok();
}

Status Entrant::Take() {
  Frame frame;
  for (int i = 0; i < kMaxGroupRanks + kMostHeard && connection_.Receive(&frame); ++i) {
    FieldReader fields(frame);
    const MessageKind kind = ReadLocalKind(&fields);
    const bool fits = kind != MessageKind::kOtherVersion && kind != MessageKind::kNone;
    COLLOPS_CHECK_ARG(fits, ERROR_RANK_MISMATCH, VersionsDiffer(pid_, getpid()).message());
    Status verdict;
    if (ReadLocalVerdict(frame, &verdict)) return verdict;
    if (kind == MessageKind::kDone) released_ = fields.Number();
    // Of several invitations only the last one counts.
    if (coming_.Take(frame)) is_new_ = coming_.complete();
  }
  return Ok();
}

Status Entrant::LookForRelease(const Invitation& invitation, bool* released, bool* in_vain) {
  COLLOPS_RETURN_IF_ERROR(Take());
  *released = released_ == invitation.token;
  *in_vain = !connection_.alive() || coming_.token != invitation.token;
  return Ok();
}

std::string Entrant::Failure() const {
  const auto ended = std::find_if(ways_.begin(), ways_.end(),
                                  [](const WayOfHosts& way) { return !way.ended.ok(); });
  if (ended != ways_.end()) return ended->ended.message();
  const bool reached = std::any_of(ways_.begin(), ways_.end(),
                                   [](const WayOfHosts& way) { return way.contact.proven(); });
  if (ways_.empty() || reached) return "";
  return Concat(ways_.front().contact.Failure(),
                ways_.size() == 1 ? "" : ", nor is it found at the rank table's other hosts");
}

void Entrant::TellMet(const Invitation& invitation) {
  if (!connection_.Send(MetMessage(invitation.token).frame())) connection_ = Connection();
}

void Entrant::AwaitNews() const {
  AwaitReady({connection_.Polled()});
}

}  // namespace collops::control

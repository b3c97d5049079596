#include <algorithm>
#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/rendezvous.h"

namespace collops::control {
namespace {

constexpr double kMemberFarewellS = 0.1;
// A name of this host that neither can be taken nor leads to a relay: this rank then speaks for
// itself alone.
constexpr double kDecideS = 1;

}  // namespace

RendezvousMember::~RendezvousMember() {
  End(Error(ERROR_PEER_LOST, "it closed its communicator"));
}

// A rank that speaks for others says whose the reason is.
Frame RendezvousMember::Farewell(const Status& reason) const {
  if (role_ != Role::kFollows) return VerdictFrame(reason);
  FieldWriter left = MessageOf(MessageKind::kLeft, spec_.rank);
  WriteReason(reason, &left);
  return left.frame();
}

// The followers of a rank that gives up before it has reached rank 0 go on without it.
void RendezvousMember::End(const Status& reason) {
  const Deadline farewell = Deadline::After(kMemberFarewellS);
  const bool tells_followers = !over_ && (joined_ || heard_);
  if (joined_ && !over_) {
    static_cast<void>(to_rank_0().Send(Farewell(reason)));
    to_rank_0().Finish(farewell);
  }
  over_ = true;
  if (!followers_.open()) return;
  if (!tells_followers) return followers_.Finish(farewell);
  followers_.End(heard_ ? reason
                        : Error(reason.code(), "rank ", spec_.rank, " left first contact of ",
                                Place(), ": ", reason.message()),
                 farewell);
}

Status RendezvousMember::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  rows_.assign(static_cast<size_t>(spec_.rank_size), Row());
  Status status;
  while (status.ok() && !welcome_) {
    status = deadline.Passed() ? TimedOut(deadline) : CheckWanted();
    if (status.ok()) status = Wait();
    if (status.ok() && !welcome_) {
      TellWaitingFor([this] {
        const Lack lack = Lacks();
        return Awaited{lack.whom, lack.why};
      });
    }
  }
  if (!status.ok()) End(status);
  contact_.Finish(Deadline::After(0));
  *rows = std::move(rows_);
  return status;
}

// One round: find who speaks for this host, ask for rank 0, join it, or take what it has sent; then
// sleep.
Status RendezvousMember::Wait() {
  if (role_ == Role::kUndecided) ChooseRole();
  if (joined_) {
    COLLOPS_RETURN_IF_ERROR(Listen());
  } else if (role_ == Role::kFollows) {
    COLLOPS_RETURN_IF_ERROR(JoinRelay());
  } else if (role_ == Role::kRelays) {
    COLLOPS_RETURN_IF_ERROR(meet_at_.length == 0 ? Find() : Join());
  }
  COLLOPS_RETURN_IF_ERROR(Serve());
  if (welcome_) return Ok();
  std::vector<pollfd> polled;
  followers_.AddPolled(&polled);
  const bool asks = role_ == Role::kRelays && meet_at_.length == 0;
  if (asks) contact_.AddPolled(&polled);
  if (role_ == Role::kRelays && !asks) connector_.AddPolled(&polled);
  if (role_ == Role::kFollows) polled.push_back(to_relay_.Polled());
  AwaitReady(std::move(polled));
  return Ok();
}

// A rank that still has to open the job's port goes there itself: one that follows does not.
void RendezvousMember::ChooseRole() {
  const std::string name = HostRelay::NameOf(spec_);
  if (contact_.LacksPort()) {
    static_cast<void>(followers_.Open(name));
    role_ = Role::kRelays;
    return;
  }
  pid_t pid = 0;
  UniqueFd socket = HostRelay::Reach(name, &pid);
  if (!decided_by_) decided_by_ = Deadline::After(kDecideS);
  if (!socket.valid() && (followers_.Open(name) || decided_by_->Passed())) {
    role_ = Role::kRelays;
    return;
  }
  // All ranks of a host may begin at once, and one was faster.
  if (!socket.valid()) socket = HostRelay::Reach(name, &pid);
  if (!socket.valid()) return;
  relay_name_ = Concat("process ", pid, ", which speaks for this host,");
  to_relay_ = Connection(std::move(socket), Concat("process ", pid));
  role_ = Role::kFollows;
}

// What the followers of this rank say, and what they are to know.
Status RendezvousMember::Serve() {
  if (!followers_.open()) return Ok();
  if (!joined_) {
    const Lack lack = Lacks();
    FieldWriter waits = MessageOf(MessageKind::kWaits);
    followers_.Tell(waits.Text(lack.whom).Text(lack.what).Text(lack.why).frame());
  }
  return followers_.Serve(joined_ ? &connector_.connection() : nullptr);
}

Status RendezvousMember::Find() {
  std::optional<PortMessage> answer;
  const Status asked = contact_.Ask(nullptr, &answer);
  heard_ = !asked.ok();
  COLLOPS_RETURN_IF_ERROR(asked);
  if (!answer || answer->port == 0) return Ok();
  COLLOPS_CHECK_ARG(ParseNumeric(answer->address, answer->port, &meet_at_), ERROR_PEER_LOST,
                    "rank 0 of ", Place(), " listens at \"", answer->address,
                    "\", which is not an address");
  contact_.Finish(Deadline::After(0));
  introduced_ = meet_at_.Text();
  return Join();
}

// Rank 0 may have ended its first contact since, and begun another one: then the job's port knows.
Status RendezvousMember::Join() {
  const Status step = connector_.Step(meet_at_);
  heard_ = !step.ok();
  COLLOPS_RETURN_IF_ERROR(step);
  if (connector_.TakeFailed()) meet_at_ = {};
  if (!connector_.proven()) return Ok();
  // Other hosts reach this one where rank 0 does.
  const SocketAddress own = connector_.connection().own_address();
  COLLOPS_RETURN_IF_ERROR(SendRow(own));
  followers_.Pass(MessageOf(MessageKind::kRelay, spec_.rank).Text(own.Host()).frame());
  return Ok();
}

Status RendezvousMember::SendRow(const SocketAddress& own) {
  joined_ = true;
  COLLOPS_RETURN_IF_ERROR(MakeOwnRow(own));
  FieldWriter fields = MessageOf(MessageKind::kRow);
  own_row_.Write(&fields);
  static_cast<void>(to_rank_0().Send(fields.frame()));
  return Ok();
}

// One that hangs up before it has spoken has ended its first contact: another one may speak.
Status RendezvousMember::JoinRelay() {
  Frame frame;
  while (!joined_ && to_relay_.Receive(&frame)) COLLOPS_RETURN_IF_ERROR(Handle(frame));
  if (joined_ || to_relay_.alive()) return Ok();
  role_ = Role::kUndecided;
  decided_by_.reset();
  return Ok();
}

Status RendezvousMember::TakeRelay(FieldReader* fields) {
  const int relay = fields->Int(0, kMaxGroupRanks - 1);  // rank 0 finds out whether it can be
  const std::string address = fields->Text(Row::kMostAddressBytes);
  SocketAddress own;
  COLLOPS_CHECK_ARG(
      fields->Done() && role_ == Role::kFollows && !joined_ && ParseNumeric(address, 0, &own),
      ERROR_PEER_LOST, relay_name_, " sent an invalid message");
  relay_name_ = Concat("rank ", relay, ", which speaks for this host,");
  return SendRow(own);
}

Status RendezvousMember::Look() {
  if (!over_) COLLOPS_RETURN_IF_ERROR(Listen());
  return Serve();
}

Status RendezvousMember::Finish(const Status& own, const Deadline& deadline) {
  Status status = own;
  if (status.ok())
    static_cast<void>(to_rank_0().Send(MessageOf(MessageKind::kDone, spec_.rank).frame()));
  while (status.ok() && !over_) {
    status = Look();
    if (!status.ok() || over_) break;
    status = CheckWanted();
    if (status.ok() && deadline.Passed()) {
      status = Error(ERROR_TIMEOUT, "rank 0 did not complete first contact of ", Place(), " in ",
                     deadline.timeout_s(), " s");
    }
    std::vector<pollfd> polled = {to_rank_0().Polled()};
    followers_.AddPolled(&polled);
    if (status.ok()) AwaitReady(std::move(polled));
  }
  if (status.ok())
    followers_.Finish(Deadline::After(std::max(deadline.RemainingS(), kMemberFarewellS)));
  if (!status.ok()) End(status);
  return status;
}

Status RendezvousMember::Listen() {
  Frame frame;
  while (!over_ && to_rank_0().Receive(&frame)) COLLOPS_RETURN_IF_ERROR(Handle(frame));
  heard_ = heard_ || !to_rank_0().alive();
  COLLOPS_CHECK_ARG(over_ || to_rank_0().alive(), ERROR_PEER_LOST, OtherEnd(),
                    " ended during first contact of ", Place(), ": ",
                    to_rank_0().ended().message());
  return Ok();
}

// What rank 0 says to a relay is for its followers, too.
Status RendezvousMember::Handle(const Frame& frame) {
  constexpr size_t kMostProgressBytes = 4096;
  const auto text = [](FieldReader* from) {
    return Printable(from->Text(kMostProgressBytes), kMostProgressBytes);
  };
  FieldReader fields(frame);
  switch (static_cast<MessageKind>(fields.Number())) {
    case MessageKind::kProgress:
      missing_ = text(&fields);
      known_ = text(&fields);
      followers_.Tell(frame);
      return Ok();
    case MessageKind::kRows: {
      std::vector<Row> rows;
      if (welcome_ || !ReadRows(&fields, &rows)) break;
      for (Row& row : rows) {
        if (row.rank < spec_.rank_size) rows_[static_cast<size_t>(row.rank)] = std::move(row);
      }
      followers_.Complete();
      followers_.Pass(frame);
      return Ok();
    }
    case MessageKind::kWelcome:
      welcome_ = std::all_of(rows_.begin(), rows_.end(), [](const Row& r) { return r.pid != 0; });
      if (!welcome_) break;
      followers_.Pass(frame);
      return Ok();
    case MessageKind::kDone:
      over_ = welcome_ && fields.Done();
      if (!over_) break;
      followers_.Pass(frame);
      return Ok();
    case MessageKind::kVerdict:
      over_ = true;  // rank 0 knows
      heard_ = true;
      followers_.Pass(frame);
      return ReadVerdict(&fields);
    case MessageKind::kRelay:
      return TakeRelay(&fields);
    case MessageKind::kWaits:
      relay_lacks_.whom = text(&fields);
      relay_lacks_.what = text(&fields);
      relay_lacks_.why = text(&fields);
      return Ok();
    case MessageKind::kNone:
    case MessageKind::kRow:
    case MessageKind::kLeft:
    case MessageKind::kEnded:
    case MessageKind::kHello:
    case MessageKind::kPeer:
    case MessageKind::kJoin:
    case MessageKind::kInvitation:
    case MessageKind::kOtherVersion:
      break;
  }
  return Error(ERROR_PEER_LOST, OtherEnd(), " of ", Place(), " sent an invalid message");
}

std::string RendezvousMember::WhyNotJoined() const {
  const std::string why = connector_.Failure();
  if (!why.empty()) return why;
  if (!contact_.proven()) return contact_.Failure();
  return Concat("the job's rank 0 answers at ", contact_.address().Text(),
                ", but rank 0 of this comm_domain has not said where it is");
}

RendezvousMember::Lack RendezvousMember::Lacks() const {
  const std::string rank_0 = Concat("rank 0 of ", spec_.rank_size);
  if (!missing_.empty()) return {missing_, missing_ + " did not connect", known_};
  if (role_ != Role::kRelays && !joined_ && !relay_lacks_.what.empty()) return relay_lacks_;
  if (role_ == Role::kFollows) return {rank_0, relay_name_ + " has not answered", ""};
  if (joined_) return {rank_0, "rank 0 has not answered", ""};
  if (role_ == Role::kUndecided) {
    return {rank_0, "rank 0 did not connect",
            ": the rank that speaks for this host was not found either"};
  }
  return LacksRank0();
}

// Of one that speaks for its host.
RendezvousMember::Lack RendezvousMember::LacksRank0() const {
  const std::string rank_0 = Concat("rank 0 of ", spec_.rank_size);
  const std::string known = DescribeMissing({}, {}, contact_.hearsay());
  if (!introduced_.empty()) {
    return {Concat(rank_0, ", which listens at ", introduced_),
            Concat("rank 0 listens at ", introduced_, ", which this host has not reached"),
            Concat(": ", WhyNotJoined(),
                   ". May the hosts of this job connect to each other's ports "
                   "(net.ipv4.ip_local_port_range)?",
                   known)};
  }
  return {Concat(rank_0, " at ", spec_.host), "rank 0 did not connect",
          Concat(": ", WhyNotJoined(),
                 ". Does it run, in the same job, with this comm_domain and this COLLOPS_PORT?",
                 known)};
}

Status RendezvousMember::TimedOut(const Deadline& deadline) const {
  const Lack lack = Lacks();
  return Error(ERROR_TIMEOUT, lack.what, " within ", deadline.timeout_s(), " s: first contact of ",
               Place(), lack.why);
}

}  // namespace collops::control

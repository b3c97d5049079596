#include <algorithm>
#include <utility>

#include "comm/control/tcp/first_contact/rendezvous_roles.h"

namespace collops::control::tcp {
namespace {

constexpr double kFarewellS = 0.1;

}  // namespace

RendezvousMember::~RendezvousMember() {
  TellLeader(Error(ERROR_PEER_LOST, "it closed its communicator"));
}

void RendezvousMember::TellLeader(const Status& reason) {
  if (joined_ && !over_) {
    static_cast<void>(approach_.connection().Send(VerdictFrame(reason)));
    approach_.connection().Finish(Deadline::After(kFarewellS));
  }
  over_ = true;
}

Status RendezvousMember::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  rows_.assign(static_cast<size_t>(spec_.rank_size), Row());
  Status status;
  while (status.ok() && !welcome_) {
    status = deadline.Passed() ? TimedOut(deadline) : CheckWanted();
    if (status.ok()) status = Wait();
  }
  if (!status.ok()) TellLeader(status);
  contact_.Finish(Deadline::After(0));
  *rows = std::move(rows_);
  return status;
}

// One round: ask for rank 0, join it, or take what it has sent; then sleep.
Status RendezvousMember::Wait() {
  if (meet_at_.length == 0) {
    RETURN_IF_ERROR(Find());
  } else {
    RETURN_IF_ERROR(joined_ ? Listen() : Join());
  }
  if (welcome_) return Ok();
  std::vector<pollfd> polled;
  meet_at_.length == 0 ? contact_.AddPolled(&polled) : approach_.AddPolled(&polled);
  Sleep(&polled, kLookMs);
  return Ok();
}

Status RendezvousMember::Find() {
  std::optional<Told> told;
  RETURN_IF_ERROR(contact_.Ask(nullptr, &told));
  if (!told || told->answer != Answer::kMeetAt) return Ok();
  CHECK_ARG(ParseNumeric(told->address, told->port, &meet_at_), ERROR_PEER_LOST, "rank 0 of ",
            Place(), " listens at \"", told->address, "\", which is no address");
  contact_.Finish(Deadline::After(0));
  introduced_ = meet_at_.Text();
  return Join();
}

// Rank 0 may have ended its first contact since, and begun another one: then the job's port knows.
Status RendezvousMember::Join() {
  RETURN_IF_ERROR(approach_.Step(meet_at_));
  if (approach_.TakeFailed()) meet_at_ = {};
  if (!approach_.proven()) return Ok();
  joined_ = true;
  // Other hosts reach this one where rank 0 does.
  RETURN_IF_ERROR(MakeOwnRow(approach_.connection().own_address()));
  FieldWriter fields = NoteOf(Note::kRow);
  own_row_.Write(&fields);
  static_cast<void>(approach_.connection().Send(fields.frame()));
  return Ok();
}

Status RendezvousMember::Look() {
  Frame frame;
  Connection& rank_0 = approach_.connection();
  while (!over_ && rank_0.Receive(&frame)) RETURN_IF_ERROR(Handle(frame));
  CHECK_ARG(over_ || rank_0.alive(), ERROR_PEER_LOST, "rank 0 ended during first contact of ",
            Place(), ": ", rank_0.ended().message());
  return Ok();
}

Status RendezvousMember::Finish(const Status& own, const Deadline& deadline) {
  Status status = own;
  if (status.ok()) static_cast<void>(approach_.connection().Send(NoteOf(Note::kDone).frame()));
  while (status.ok() && !over_) {
    status = Look();
    if (status.ok() && !over_) status = CheckWanted();
    if (status.ok() && !over_ && deadline.Passed()) {
      status = Error(ERROR_TIMEOUT, "rank 0 did not complete first contact of ", Place(), " in ",
                     deadline.timeout_s(), " s");
    }
    std::vector<pollfd> polled;
    approach_.AddPolled(&polled);
    if (status.ok() && !over_) Sleep(&polled, kLookMs);
  }
  TellLeader(status);
  return status;
}

Status RendezvousMember::Listen() {
  Frame frame;
  Connection& rank_0 = approach_.connection();
  while (!welcome_ && rank_0.Receive(&frame)) RETURN_IF_ERROR(Handle(frame));
  CHECK_ARG(welcome_ || rank_0.alive(), ERROR_PEER_LOST, "rank 0 ended during first contact of ",
            Place(), ": ", rank_0.ended().message());
  return Ok();
}

Status RendezvousMember::Handle(const Frame& frame) {
  constexpr size_t kMostProgressBytes = 4096;
  FieldReader fields(frame);
  switch (static_cast<Note>(fields.Number())) {
    case Note::kProgress:
      missing_ = fields.Text(kMostProgressBytes);
      return Ok();
    case Note::kRow: {
      Row row = Row::Read(&fields);
      if (!fields.Done() || row.rank >= spec_.rank_size) break;
      rows_[static_cast<size_t>(row.rank)] = std::move(row);
      return Ok();
    }
    case Note::kWelcome:
      welcome_ = std::all_of(rows_.begin(), rows_.end(), [](const Row& r) { return r.pid != 0; });
      if (!welcome_) break;
      return Ok();
    case Note::kDone:
      over_ = welcome_ && fields.Done();
      if (!over_) break;
      return Ok();
    case Note::kVerdict:
      over_ = true;  // rank 0 knows
      return ReadVerdict(&fields);
  }
  return Error(ERROR_PEER_LOST, "rank 0 of ", Place(), " sent a note that cannot be");
}

std::string RendezvousMember::WhyNotJoined() const {
  const std::string why = approach_.Failure();
  if (!why.empty()) return why;
  if (!contact_.proven()) return contact_.Failure();
  return Concat("the job's rank 0 answers at ", contact_.address().Text(),
                ", but rank 0 of this comm_domain has not said where it is");
}

Status RendezvousMember::TimedOut(const Deadline& deadline) const {
  const std::string where = Concat(" in ", deadline.timeout_s(), " s: first contact of ", Place());
  if (joined_ && !missing_.empty()) {
    return Error(ERROR_TIMEOUT, missing_, " did not come", where);
  }
  if (joined_) return Error(ERROR_TIMEOUT, "rank 0 has not answered", where);
  if (!introduced_.empty()) {
    return Error(ERROR_TIMEOUT, "rank 0 listens at ", introduced_,
                 ", which this host has not reached", where, ": ", WhyNotJoined(),
                 ". May the hosts of this job connect to each other's ports "
                 "(net.ipv4.ip_local_port_range)?");
  }
  return Error(ERROR_TIMEOUT, "rank 0 did not come", where, ": ", WhyNotJoined(),
               ". Does it run, in the same job, with this comm_domain and this COLLOPS_PORT?");
}

}  // namespace collops::control::tcp

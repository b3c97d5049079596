#include <algorithm>
#include <utility>

#include "comm/control/tcp/rendezvous_roles.h"

namespace collops::control::tcp {
namespace {

constexpr int kLeastPauseMs = 20;
constexpr int kMostPauseMs = 200;
// Longer than rank 0 needs to answer.
constexpr double kAnswerS = 1;

}  // namespace

RendezvousMember::~RendezvousMember() {
  Leave(Error(ERROR_PEER_LOST, "it closed its communicator"));
}

void RendezvousMember::Leave(const Status& reason) {
  if (proven_ && !welcome_ && application_) {
    static_cast<void>(application_->connection().Send(VerdictFrame(reason)));
    application_->connection().Finish(Deadline::After(0.1));
  }
  application_.reset();
}

Status RendezvousMember::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  RETURN_IF_ERROR(Resolve(spec_.host, spec_.port, &address_));
  rows_.assign(static_cast<size_t>(spec_.rank_size), Row());
  Status status;
  while (status.ok() && !welcome_) {
    status = deadline.Passed() ? TimedOut(deadline) : CheckWanted();
    if (status.ok()) status = Wait(deadline);
  }
  if (!status.ok()) Leave(status);
  application_.reset();
  *rows = std::move(rows_);
  return status;
}

// One round: connect, go on proving, or take what rank 0 has sent; then sleep.
Status RendezvousMember::Wait(const Deadline& deadline) {
  if (!application_) return Connect(deadline);
  RETURN_IF_ERROR(proven_ ? Listen() : Prove());
  if (!application_ || welcome_) return Ok();
  std::vector<pollfd> polled = {application_->connection().Polled()};
  Sleep(&polled, kLookMs);
  return Ok();
}

// Rank 0 may come last: the first attempt is at once, each later one after a longer pause.
Status RendezvousMember::Connect(const Deadline& deadline) {
  std::vector<pollfd> nothing;
  const auto left_ms = static_cast<int>(std::min(deadline.RemainingS(), 1.0) * 1000);
  if (pause_ms_ > 0) Sleep(&nothing, std::min(pause_ms_, left_ms));
  pause_ms_ = std::clamp(2 * pause_ms_, kLeastPauseMs, kMostPauseMs);
  const Claim claim = {spec_.domain, "ranks", spec_.rank, spec_.rank_size};
  answer_ = Deadline::After(kAnswerS);
  application_.emplace(Connection(address_), &spec_.secret, claim);
  return Ok();
}

Status RendezvousMember::Prove() {
  switch (application_->Step()) {
    case Proof::kUnderWay:
      return Ok();
    case Proof::kRefused: {
      const Status refusal = application_->refusal();
      last_failure_ = refusal.message();
      const bool may_retry = application_->may_retry();
      application_.reset();
      return may_retry ? Ok() : refusal;
    }
    case Proof::kGiven:
      break;
  }
  proven_ = true;
  // Other hosts reach this one where rank 0 does.
  RETURN_IF_ERROR(MakeOwnRow(application_->connection().own_address()));
  FieldWriter fields = NoteOf(Note::kRow);
  own_row_.Write(&fields);
  static_cast<void>(application_->connection().Send(fields.frame()));
  return Ok();
}

Status RendezvousMember::Listen() {
  Frame frame;
  while (!welcome_ && application_->connection().Receive(&frame)) RETURN_IF_ERROR(Handle(frame));
  CHECK_ARG(welcome_ || application_->connection().alive(), ERROR_PEER_LOST,
            "rank 0 ended during first contact of ", Place(), ": ",
            application_->connection().ended().message());
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
    case Note::kVerdict:
      proven_ = false;  // rank 0 knows
      return ReadVerdict(&fields);
  }
  return Error(ERROR_PEER_LOST, "rank 0 of ", Place(), " sent a note that cannot be");
}

Status RendezvousMember::TimedOut(const Deadline& deadline) const {
  const std::string where = Concat(" in ", deadline.timeout_s(), " s: first contact of ", Place());
  if (proven_ && !missing_.empty()) {
    return Error(ERROR_TIMEOUT, missing_, " did not come", where);
  }
  if (proven_) return Error(ERROR_TIMEOUT, "rank 0 has not answered", where);
  std::string why = last_failure_;
  // An attempt that has just begun says less than the last one.
  if (application_ && (why.empty() || answer_.Passed())) {
    const bool reached = application_->connection().link() == Link::kOpen;
    why = Concat(address_.Text(), reached ? " was reached, but has said nothing"
                                          : " is silent: no answer to an attempt to connect");
  }
  return Error(ERROR_TIMEOUT, "rank 0 did not come", where, ": ", why,
               ". Does it run, in the same job, with this comm_domain and this COLLOPS_PORT?");
}

}  // namespace collops::control::tcp

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/rendezvous.h"
#include "collops/core/process/interrupt.h"

namespace collops::control {
namespace {

constexpr double kLeaveS = 1;

// Where the job's port is gone, nobody waits there.
constexpr double kHangUpS = 0.2;
// The ranks that have come are told at most so often which ones are missing.
constexpr double kProgressS = 0.02;
// And what is known of them, where no more have come: strangers may come all the time.
constexpr double kProgressOfKnownS = 0.5;
// A rank 0 that will not come holds the job's port for so long, so that those who ask learn it.
constexpr double kHoldPortS = 3;

// After a failure, late ranks get the reason for so long, instead of waiting until their time-out.
constexpr double kLingerS = 0.8;
// Ranks that are there get it also after the deadline.
constexpr double kLeaderFarewellS = 0.2;

}  // namespace

Rendezvous::Rendezvous(const RendezvousSpec& spec, const char* purpose)
    : spec_(spec),
      contact_(&spec_, purpose),
      own_listener_(std::make_unique<JobListener>(spec.secret)) {}

void Rendezvous::Leave(const Status& reason, double patience_s) {
  PortContact contact(&spec_, kLeave);
  contact.Leave(reason, Deadline::After(kLeaveS), Deadline::After(patience_s));
  const Deadline held = Deadline::After(std::min(kHoldPortS, patience_s));
  while (contact.has_port() && !held.Passed() && !Interrupted()) AwaitReady({});
}

Status Rendezvous::CheckWanted() const {
  COLLOPS_CHECK_ARG(!stopped_.load(std::memory_order_acquire), ERROR_ABORTED,
                    "first contact was stopped");
  COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
  return Ok();
}

Status Rendezvous::MakeOwnRow(SocketAddress address) {
  address.set_port(0);
  if (!own_listener_->open()) COLLOPS_RETURN_IF_ERROR(own_listener_->Open(address));
  own_row_.rank = spec_.rank;
  own_row_.pid = getpid();
  own_row_.host = HostIdentity().substr(0, Row::kMostHostBytes);
  own_row_.address = own_listener_->address().Host();
  own_row_.port = own_listener_->address().port();
  return Ok();
}

std::string Rendezvous::Place() const {
  const std::string domain = spec_.domain.empty() ? "" : Concat(" \"", spec_.domain, "\"");
  return Concat("comm_domain", domain, " at ", spec_.host, " port ", spec_.port);
}

void Rendezvous::TellWaitingFor(const std::function<Awaited()>& awaited) {
  waiting_.Tell([&] {
    const Awaited now = awaited();
    return Concat(WaitingText(spec_.rank, spec_.comm_domain, now.whom, spec_.job), now.known);
  });
}

std::unique_ptr<Rendezvous> Rendezvous::Create(const RendezvousSpec& spec) {
  if (spec.rank == 0) return std::make_unique<RendezvousLeader>(spec);
  return std::make_unique<RendezvousMember>(spec);
}

RendezvousLeader::~RendezvousLeader() {
  const Status reason = Error(ERROR_PEER_LOST, "rank 0 closed its communicator");
  for (Client& client : clients_) static_cast<void>(client.connection.Send(VerdictFrame(reason)));
}

Status RendezvousLeader::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  rows_.resize(static_cast<size_t>(spec_.rank_size));
  present_.Add(0);
  num_present_ = 1;
  if (spec_.rank_size == 1) {
    unreachable_ = MakeOnlyRow();
    if (unreachable_.ok()) rows_[0] = own_row_;
  }
  Status status = Gather(deadline);
  if (status.ok()) status = Introduce(deadline);
  if (!status.ok()) TellAll(status, deadline);
  ranks_listener_.Close();
  contact_.Finish(Deadline::After(kHangUpS));
  *rows = rows_;
  return status;
}

Status RendezvousLeader::MakeOnlyRow() {
  SocketAddress own;
  COLLOPS_CHECK_ARG(spec_.has_port, ERROR_UNSUPPORTED, "MASTER_ADDR is the host of the launch's ",
                    "rank 0, which it is not: pass init a job_id, and an address of this host in "
                    "meet_at");
  COLLOPS_CHECK_ARG(ParseNumeric(spec_.host, 0, &own), ERROR_UNSUPPORTED, "MASTER_ADDR is \"",
                    spec_.host, "\": set it to an address of this host, in numbers");
  return MakeOwnRow(own);
}

// Where this rank listens: at a free port of the address at which the job's port is, or from which
// this host reaches it. A job's port that ends is asked again: another one may follow.
Status RendezvousLeader::Register() {
  std::optional<PortMessage> answer;
  const auto listen = [this](const SocketAddress& own, PortMessage* request) {
    return Listen(own, request);
  };
  COLLOPS_RETURN_IF_ERROR(contact_.Ask(listen, &answer));
  registered_ = (registered_ || answer.has_value()) && contact_.proven();
  return Ok();
}

Status RendezvousLeader::Listen(const SocketAddress& own, PortMessage* request) {
  SocketAddress any_port = own;
  any_port.set_port(0);
  if (!ranks_listener_.open()) COLLOPS_RETURN_IF_ERROR(ranks_listener_.Open(any_port));
  COLLOPS_RETURN_IF_ERROR(MakeOwnRow(own));
  rows_[0] = own_row_;
  request->address = ranks_listener_.address().Host();
  request->port = ranks_listener_.address().port();
  return Ok();
}

Status RendezvousLeader::TimedOut(const Deadline& deadline) const {
  return Error(ERROR_TIMEOUT, RanksMissing(present_, spec_.rank_size), " did not connect within ",
               deadline.timeout_s(), " s: first contact of ", Place(), Known());
}

// What rank 0 knows of those that are missing.
std::string RendezvousLeader::Known() const {
  std::string hindered;
  if (!registered_) {
    hindered = Concat("; rank 0 did not reach the job's port, where they look for it: ",
                      contact_.Failure());
  } else if (ranks_listener_.lacks_descriptors()) {
    hindered = Concat("; turned away: ", ranks_listener_.last_refusal().message());
  }
  PortHearsay hearsay = contact_.hearsay();
  std::vector<std::string>& all = hearsay.turned_away;
  for (const std::string& who : ranks_listener_.turned_away()) {
    if (std::find(all.begin(), all.end(), who) == all.end()) all.push_back(who);
  }
  return hindered + DescribeMissing(present_, spec_.hosts, hearsay);
}

Status RendezvousLeader::Gather(const Deadline& deadline) {
  while (!Complete()) {
    if (deadline.Passed()) return TimedOut(deadline);
    TellWaitingFor([this] { return Awaited{RanksMissing(present_, spec_.rank_size), Known()}; });
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_RETURN_IF_ERROR(Register());
    Receive();
    for (Client& client : clients_) COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));
    clients_.remove_if([](const Client& client) { return !client.connection.alive(); });
    TellProgress();
    if (Complete()) break;
    std::vector<pollfd> polled;
    contact_.AddPolled(&polled);
    ranks_listener_.AddPolled(&polled);
    for (const Client& client : clients_) polled.push_back(client.connection.Polled());
    AwaitReady(std::move(polled));
  }
  return Ok();
}

// Takes those who have proven themselves. Those of another domain are told that they err.
void RendezvousLeader::Receive() {
  std::vector<Proven> proven;
  while (ranks_listener_.Next(&proven)) continue;
  for (Proven& one : proven) {
    if (one.claim.domain == spec_.domain && one.claim.purpose == kRanks) {
      clients_.push_back(
          {std::move(one.connection), std::move(one.claim), RankSet::None(spec_.rank_size)});
      continue;
    }
    const Status reason = Error(ERROR_RANK_MISMATCH, "rank 0 of ", Place(),
                                " got a rank of comm_domain \"", one.claim.domain, "\"");
    static_cast<void>(one.connection.Send(VerdictFrame(reason)));
    one.connection.Finish(Deadline::After(0));
  }
}

Status RendezvousLeader::ReadFrom(Client* client) {
  Frame frame;
  while (client->connection.Receive(&frame)) {
    bool sound = false;
    COLLOPS_RETURN_IF_ERROR(Take(client, frame, &sound));
    if (!sound) client->connection.Break("sent an invalid frame");
  }
  COLLOPS_CHECK_ARG(!client->admitted || client->connection.alive(), ERROR_PEER_LOST,
                    RowOf(client->claim.rank).Who(), " ended during first contact of ", Place(),
                    ": ", client->connection.ended().message());
  return Ok();
}

Status RendezvousLeader::Take(Client* client, const Frame& frame, bool* sound) {
  FieldReader fields(frame);
  const auto kind = static_cast<MessageKind>(fields.Number());
  *sound = true;
  if (kind == MessageKind::kVerdict) return TakeLeave(client->claim.rank, &fields);
  if (kind == MessageKind::kRow) {
    const Row row = Row::Read(&fields);
    if (fields.Done()) return Admit(client, row);
  }
  const int rank = fields.Int(0, spec_.rank_size - 1);
  const bool speaks = fields.valid() && client->ranks.Contains(rank);
  // A rank may leave before its row has come.
  const bool leaves = kind == MessageKind::kLeft && fields.valid() && client->admitted;
  if (leaves && (speaks || !present_.Contains(rank))) return TakeLeave(rank, &fields);
  if (speaks && kind == MessageKind::kEnded) {
    return Error(ERROR_PEER_LOST, RowOf(rank).Who(), " ended during first contact of ", Place(),
                 ": ", fields.Text(kReasonBytes));
  }
  *sound =
      speaks && kind == MessageKind::kDone && Complete() && fields.Done() && !done_.Contains(rank);
  if (!*sound) return Ok();
  done_.Add(rank);
  ++num_done_;
  return Ok();
}

Status RendezvousLeader::TakeLeave(int rank, FieldReader* fields) const {
  const Status reason = ReadVerdict(fields);
  return Error(reason.code(), "rank ", rank, " left first contact of ", Place(), ": ",
               reason.message());
}

// The first row of a client is its own; then come those of ranks for which it speaks.
Status RendezvousLeader::Admit(Client* client, const Row& row) {
  const Claim& claim = client->claim;
  COLLOPS_CHECK_ARG(claim.rank_size == spec_.rank_size, ERROR_RANK_MISMATCH, Place(), ": ",
                    spec_.voice.rank_size, " is ", spec_.rank_size, " on ", own_row_.Who(), " and ",
                    claim.rank_size, " on ", row.Who());
  COLLOPS_CHECK_ARG(row.rank < spec_.rank_size && (client->admitted || row.rank == claim.rank),
                    ERROR_RANK_MISMATCH, Place(), ": ", row.Who(), " is not one of the ",
                    spec_.rank_size, " ranks");
  const Row& known = RowOf(row.rank);
  COLLOPS_CHECK_ARG(!present_.Contains(row.rank), ERROR_RANK_MISMATCH, Place(), ": rank ", row.rank,
                    " is claimed twice, by pid ", known.pid, " on ", known.address, " and by pid ",
                    row.pid, " on ", row.address);
  client->admitted = true;
  client->ranks.Add(row.rank);
  rows_[static_cast<size_t>(row.rank)] = row;
  present_.Add(row.rank);
  ++num_present_;
  return Ok();
}

void RendezvousLeader::TellProgress() {
  if (Complete() || !tell_again_.Passed()) return;
  const bool have_come = sent_present_ != num_present_;
  if (!have_come && !tell_known_again_.Passed()) return;
  const std::string known = Known();
  if (!have_come && known == sent_known_) return;
  const std::string missing = RanksMissing(present_, spec_.rank_size);
  const Frame frame = MessageOf(MessageKind::kProgress).Text(missing).Text(known).frame();
  for (Client& client : clients_) static_cast<void>(client.connection.Send(frame));
  sent_present_ = num_present_;
  sent_known_ = known;
  tell_again_ = Deadline::After(kProgressS);
  tell_known_again_ = Deadline::After(kProgressOfKnownS);
}

// No rank is welcomed before all rows are on their way to all.
Status RendezvousLeader::Introduce(const Deadline& deadline) {
  COLLOPS_RETURN_IF_ERROR(SendToAll(RowFrames(rows_), deadline));
  return SendToAll({MessageOf(MessageKind::kWelcome).frame()}, deadline);
}

// The rows of many ranks are more than a connection queues.
Status RendezvousLeader::SendToAll(const std::vector<Frame>& frames, const Deadline& deadline) {
  std::vector<size_t> sent(clients_.size(), 0);
  while (true) {
    std::vector<pollfd> polled;
    std::string slow;
    size_t at = 0;
    for (Client& client : clients_) {
      size_t& next = sent[at++];
      while (next < frames.size() && client.connection.Send(frames[next])) ++next;
      COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));
      if (next == frames.size() || !client.admitted) continue;
      polled.push_back(client.connection.Polled());
      slow = RowOf(client.claim.rank).Who();
    }
    if (polled.empty()) return Ok();
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, slow,
                      " did not complete first contact of ", Place(), " in ", deadline.timeout_s(),
                      " s");
    AwaitReady(std::move(polled));
  }
}

Status RendezvousLeader::Look() {
  for (Client& client : clients_) {
    client.connection.Flush();
    COLLOPS_RETURN_IF_ERROR(ReadFrom(&client));
  }
  return Ok();
}

std::string RendezvousLeader::NotDone() const {
  constexpr int kMostListed = 16;
  std::string list;
  int listed = 0;
  for (int rank = 1; rank < spec_.rank_size && listed < kMostListed; ++rank) {
    if (!done_.Contains(rank)) list += Concat(listed++ > 0 ? ", " : "", RowOf(rank).Who());
  }
  const int others = spec_.rank_size - 1 - num_done_ - listed;
  return others > 0 ? Concat(list, " and ", others, " others") : list;
}

Status RendezvousLeader::AwaitDone(const Deadline& deadline) {
  while (true) {
    COLLOPS_RETURN_IF_ERROR(Look());
    if (num_done_ == spec_.rank_size - 1) return Ok();
    TellWaitingFor([this] { return Awaited{NotDone(), ", to complete first contact"}; });
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, NotDone(),
                      " did not complete first contact of ", Place(), " in ", deadline.timeout_s(),
                      " s");
    std::vector<pollfd> polled;
    for (const Client& client : clients_) polled.push_back(client.connection.Polled());
    AwaitReady(std::move(polled));
  }
}

Status RendezvousLeader::Finish(const Status& own, const Deadline& deadline) {
  const Status status = own.ok() ? AwaitDone(deadline) : own;
  const Frame word = status.ok() ? MessageOf(MessageKind::kDone).frame() : VerdictFrame(status);
  for (Client& client : clients_) static_cast<void>(client.connection.Send(word));
  const Deadline farewell = Deadline::After(std::max(deadline.RemainingS(), kLeaderFarewellS));
  for (Client& client : clients_) client.connection.Finish(farewell);
  clients_.clear();
  rows_ = {};
  return status;
}

// Tells those that are there, and those that come in the next moment.
void RendezvousLeader::TellAll(const Status& reason, const Deadline& deadline) {
  const Frame verdict = VerdictFrame(reason);
  const bool late = deadline.Passed();
  const Deadline linger = Deadline::After(late ? kLeaderFarewellS : kLingerS);
  RankSet informed = RankSet::None(spec_.rank_size);
  informed.Add(0);
  do {
    for (Client& client : clients_) {
      if (!client.connection.Send(verdict)) continue;
      if (client.claim.rank < spec_.rank_size) informed.Add(client.claim.rank);
      informed.AddAll(client.ranks);
    }
    for (Client& client : clients_) client.connection.Finish(linger);
    clients_.clear();
    if (informed.all() || late || !ranks_listener_.open() || !CheckWanted().ok()) break;
    std::vector<pollfd> polled;
    ranks_listener_.AddPolled(&polled);
    AwaitReady(std::move(polled));
    Receive();
  } while (!linger.Passed());
}

}  // namespace collops::control

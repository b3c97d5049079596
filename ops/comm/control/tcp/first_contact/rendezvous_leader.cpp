#include <algorithm>
#include <utility>

#include "comm/control/bootstrap/messages.h"
#include "comm/control/tcp/first_contact/rendezvous_roles.h"

namespace collops::control::tcp {
namespace {

// After a failure, late ranks get the reason for so long, instead of waiting until their time-out.
constexpr double kLingerS = 0.8;
// Ranks that are there get it also after the deadline.
constexpr double kFarewellS = 0.2;
// Where the job's port is gone, nobody waits there.
constexpr double kHangUpS = 0.2;

}  // namespace

RendezvousLeader::~RendezvousLeader() {
  const Status reason = Error(ERROR_PEER_LOST, "rank 0 closed its communicator");
  for (Client& client : clients_) static_cast<void>(client.connection.Send(VerdictFrame(reason)));
}

Status RendezvousLeader::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  rows_.resize(static_cast<size_t>(spec_.rank_size));
  present_.set(0);
  Status status = Gather(deadline);
  if (status.ok()) status = Introduce();
  if (!status.ok()) TellAll(status, deadline);
  ranks_door_.Close();
  contact_.Finish(Deadline::After(kHangUpS));
  *rows = rows_;
  return status;
}

// Where this rank listens: at a free port of the address at which the job's port is, or from which
// this host reaches it. A job's port that ends is asked again: another one may follow.
Status RendezvousLeader::Register() {
  std::optional<Told> told;
  const auto listen = [this](const SocketAddress& own, Said* said) { return Listen(own, said); };
  RETURN_IF_ERROR(contact_.Ask(listen, &told));
  registered_ = (registered_ || told.has_value()) && contact_.proven();
  return Ok();
}

Status RendezvousLeader::Listen(const SocketAddress& own, Said* said) {
  SocketAddress any_port = own;
  any_port.set_port(0);
  if (!ranks_door_.open()) RETURN_IF_ERROR(ranks_door_.Open(any_port));
  RETURN_IF_ERROR(MakeOwnRow(own));
  rows_[0] = own_row_;
  said->address = ranks_door_.address().Host();
  said->port = ranks_door_.address().port();
  return Ok();
}

std::string RendezvousLeader::Missing() const {
  return RanksMissing(present_, spec_.rank_size);
}

Status RendezvousLeader::TimedOut(const Deadline& deadline) const {
  const Status refused = ranks_door_.last_refusal();
  std::string why;
  if (!registered_) {
    why = Concat("; this rank did not reach the job's port, where they look for it: ",
                 contact_.Failure());
  } else if (!refused.ok()) {
    why = Concat("; the last one turned away: ", refused.message());
  }
  return Error(ERROR_TIMEOUT, Missing(), " did not come in ", deadline.timeout_s(),
               " s: first contact of ", Place(), why);
}

Status RendezvousLeader::Gather(const Deadline& deadline) {
  while (!Complete()) {
    if (deadline.Passed()) return TimedOut(deadline);
    RETURN_IF_ERROR(CheckWanted());
    RETURN_IF_ERROR(Register());
    Receive();
    for (Client& client : clients_) RETURN_IF_ERROR(ReadFrom(&client));
    clients_.remove_if([](const Client& client) { return !client.connection.alive(); });
    TellProgress();
    if (Complete()) break;
    std::vector<pollfd> polled;
    contact_.AddPolled(&polled);
    ranks_door_.AddPolled(&polled);
    for (const Client& client : clients_) polled.push_back(client.connection.Polled());
    Sleep(&polled, kLookMs);
  }
  return Ok();
}

// Takes those who have proven themselves. Those of another domain are told that they err.
void RendezvousLeader::Receive() {
  std::vector<Proven> proven;
  while (ranks_door_.Next(&proven)) continue;
  for (Proven& one : proven) {
    if (one.claim.domain == spec_.domain && one.claim.purpose == kRanks) {
      clients_.push_back({std::move(one.connection), std::move(one.claim)});
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
    FieldReader fields(frame);
    const auto note = static_cast<Note>(fields.Number());
    if (note == Note::kVerdict) return TakeLeave(*client, &fields);
    if (note == Note::kDone && client->admitted && Complete() && fields.Done()) {
      client->done = true;
      continue;
    }
    const Row row = Row::Read(&fields);
    if (note != Note::kRow || !fields.Done() || client->admitted) {
      client->connection.Break("sent a frame that cannot be");
      break;
    }
    RETURN_IF_ERROR(Admit(client, row));
  }
  CHECK_ARG(!client->admitted || client->connection.alive(), ERROR_PEER_LOST,
            rows_[static_cast<size_t>(client->claim.rank)].Who(), " ended during first contact of ",
            Place(), ": ", client->connection.ended().message());
  return Ok();
}

Status RendezvousLeader::TakeLeave(const Client& client, FieldReader* fields) const {
  const Status reason = ReadVerdict(fields);
  return Error(reason.code(), "rank ", client.claim.rank, " left first contact of ", Place(), ": ",
               reason.message());
}

Status RendezvousLeader::Admit(Client* client, const Row& row) {
  const Claim& claim = client->claim;
  CHECK_ARG(claim.rank_size == spec_.rank_size, ERROR_RANK_MISMATCH, Place(), ": rankSize is ",
            spec_.rank_size, " on ", own_row_.Who(), " and ", claim.rank_size, " on ", row.Who());
  CHECK_ARG(claim.rank < spec_.rank_size && row.rank == claim.rank, ERROR_RANK_MISMATCH, Place(),
            ": ", row.Who(), " is no rank of ", spec_.rank_size, " ranks");
  const auto at = static_cast<size_t>(row.rank);
  CHECK_ARG(!present_.test(at), ERROR_RANK_MISMATCH, Place(), ": rank ", row.rank,
            " is claimed twice, by pid ", rows_[at].pid, " on ", rows_[at].address, " and by pid ",
            row.pid, " on ", row.address);
  client->admitted = true;
  rows_[at] = row;
  present_.set(at);
  return Ok();
}

void RendezvousLeader::TellProgress() {
  if (told_ == present_) return;
  const Frame frame = NoteOf(Note::kProgress).Text(Missing()).frame();
  for (Client& client : clients_) static_cast<void>(client.connection.Send(frame));
  told_ = present_;
}

// No rank is welcomed before all rows are on their way to all.
Status RendezvousLeader::Introduce() {
  for (Client& client : clients_) {
    for (const Row& row : rows_) {
      FieldWriter fields = NoteOf(Note::kRow);
      row.Write(&fields);
      static_cast<void>(client.connection.Send(fields.frame()));
    }
  }
  for (Client& client : clients_) RETURN_IF_ERROR(ReadFrom(&client));
  for (Client& client : clients_) {
    static_cast<void>(client.connection.Send(NoteOf(Note::kWelcome).frame()));
  }
  return Ok();
}

Status RendezvousLeader::Look() {
  for (Client& client : clients_) {
    client.connection.Flush();
    RETURN_IF_ERROR(ReadFrom(&client));
  }
  return Ok();
}

Status RendezvousLeader::AwaitDone(const Deadline& deadline) {
  while (true) {
    RETURN_IF_ERROR(Look());
    std::vector<pollfd> polled;
    std::string missing;
    for (const Client& client : clients_) {
      if (client.done) continue;
      polled.push_back(client.connection.Polled());
      const Row& row = rows_[static_cast<size_t>(client.claim.rank)];
      missing += (missing.empty() ? "" : ", ") + row.Who();
    }
    if (missing.empty()) return Ok();
    RETURN_IF_ERROR(CheckWanted());
    CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, missing, " did not complete first contact of ",
              Place(), " in ", deadline.timeout_s(), " s");
    Sleep(&polled, kLookMs);
  }
}

Status RendezvousLeader::Finish(const Status& own, const Deadline& deadline) {
  const Status status = own.ok() ? AwaitDone(deadline) : own;
  const Frame word = status.ok() ? NoteOf(Note::kDone).frame() : VerdictFrame(status);
  for (Client& client : clients_) static_cast<void>(client.connection.Send(word));
  const Deadline farewell = Deadline::After(std::max(deadline.RemainingS(), kFarewellS));
  for (Client& client : clients_) client.connection.Finish(farewell);
  clients_.clear();
  return status;
}

// Tells those that are there, and those that come in the next moment.
void RendezvousLeader::TellAll(const Status& reason, const Deadline& deadline) {
  const Frame verdict = VerdictFrame(reason);
  const bool late = deadline.Passed();
  const Deadline linger = Deadline::After(late ? kFarewellS : kLingerS);
  std::bitset<kMaxRanks> told;
  told.set(0);
  do {
    for (Client& client : clients_) {
      if (!client.connection.Send(verdict)) continue;
      told.set(static_cast<size_t>(client.claim.rank));
      client.connection.Finish(linger);
    }
    clients_.clear();
    const bool all = told.count() >= static_cast<size_t>(spec_.rank_size);
    if (all || late || !ranks_door_.open() || !CheckWanted().ok()) break;
    std::vector<pollfd> polled;
    ranks_door_.AddPolled(&polled);
    Sleep(&polled, kLookMs);
    Receive();
  } while (!linger.Passed());
}

}  // namespace collops::control::tcp

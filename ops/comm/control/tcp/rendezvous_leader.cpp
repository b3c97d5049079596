#include <algorithm>
#include <utility>

#include "comm/control/bootstrap/messages.h"
#include "comm/control/tcp/rendezvous_roles.h"

namespace collops::control::tcp {
namespace {

// After a failure, late ranks get the reason for so long, instead of waiting until their time-out.
constexpr double kLingerS = 0.8;
// Ranks that are there get it also after the deadline.
constexpr double kFarewellS = 0.2;
constexpr const char* kPurpose = "ranks";

}  // namespace

RendezvousLeader::~RendezvousLeader() {
  const Status reason = Error(ERROR_PEER_LOST, "rank 0 closed its communicator");
  for (Client& client : clients_) static_cast<void>(client.connection.Send(VerdictFrame(reason)));
}

Status RendezvousLeader::Begin() {
  SocketAddress address;
  RETURN_IF_ERROR(Resolve(spec_.host, spec_.port, &address));
  return port_.Open(address);
}

Status RendezvousLeader::Complete(const Deadline& deadline, std::vector<Row>* rows) {
  Status status = port_.open() ? Ok() : Begin();
  if (status.ok()) status = MakeOwnRow(port_.address());
  rows_.resize(static_cast<size_t>(spec_.rank_size));
  rows_[0] = own_row_;
  present_.set(0);
  if (status.ok()) status = Gather(deadline);
  if (status.ok()) status = Introduce(deadline);
  if (!status.ok() && port_.open()) TellAll(status, deadline);
  port_.Close();
  clients_.clear();
  *rows = std::move(rows_);
  return status;
}

std::string RendezvousLeader::Missing() const {
  return RanksMissing(present_, spec_.rank_size);
}

Status RendezvousLeader::Gather(const Deadline& deadline) {
  while (present_.count() < static_cast<size_t>(spec_.rank_size)) {
    const Status refused = port_.last_refusal();
    CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, Missing(), " did not come in ",
              deadline.timeout_s(), " s: first contact of ", Place(),
              refused.ok() ? "" : "; the last one turned away: ", refused.message());
    RETURN_IF_ERROR(CheckWanted());
    Receive();
    for (Client& client : clients_) RETURN_IF_ERROR(ReadFrom(&client));
    clients_.remove_if([](const Client& client) { return !client.connection.alive(); });
    TellProgress();
    if (present_.count() == static_cast<size_t>(spec_.rank_size)) break;
    std::vector<pollfd> polled;
    port_.AddPolled(&polled);
    for (const Client& client : clients_) polled.push_back(client.connection.Polled());
    Sleep(&polled, kLookMs);
  }
  return Ok();
}

// Takes those who have proven themselves. Those of another domain are told that they err.
void RendezvousLeader::Receive() {
  std::vector<Proven> proven;
  while (port_.Next(&proven)) continue;
  for (Proven& one : proven) {
    if (one.claim.domain == spec_.domain && one.claim.purpose == kPurpose) {
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
Status RendezvousLeader::Introduce(const Deadline& deadline) {
  port_.Close();
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
  for (Client& client : clients_) client.connection.Finish(deadline);
  return Ok();
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
    if (all || late || !CheckWanted().ok()) break;
    std::vector<pollfd> polled;
    port_.AddPolled(&polled);
    Sleep(&polled, kLookMs);
    Receive();
  } while (!linger.Passed());
}

}  // namespace collops::control::tcp

#include <algorithm>
#include <utility>

#include "collops/comm/control/tcp/first_contact/rendezvous_roles.h"

namespace collops::control::tcp {
namespace {

// After a failure, late ranks get the reason for so long, instead of waiting until their time-out.
constexpr double kLingerS = 0.8;
// Ranks that are there get it also after the deadline.
constexpr double kFarewellS = 0.2;

}  // namespace

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
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, NotDone(),
                      " did not complete first contact of ", Place(), " in ", deadline.timeout_s(),
                      " s");
    std::vector<pollfd> polled;
    for (const Client& client : clients_) polled.push_back(client.connection.Polled());
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
  rows_ = {};
  return status;
}

// Tells those that are there, and those that come in the next moment.
void RendezvousLeader::TellAll(const Status& reason, const Deadline& deadline) {
  const Frame verdict = VerdictFrame(reason);
  const bool late = deadline.Passed();
  const Deadline linger = Deadline::After(late ? kFarewellS : kLingerS);
  RankSet told = RankSet::None(spec_.rank_size);
  told.Add(0);
  do {
    for (Client& client : clients_) {
      if (!client.connection.Send(verdict)) continue;
      if (client.claim.rank < spec_.rank_size) told.Add(client.claim.rank);
      told.AddAll(client.ranks);
    }
    for (Client& client : clients_) client.connection.Finish(linger);
    clients_.clear();
    if (told.all() || late || !ranks_door_.open() || !CheckWanted().ok()) break;
    std::vector<pollfd> polled;
    ranks_door_.AddPolled(&polled);
    Sleep(&polled, kLookMs);
    Receive();
  } while (!linger.Passed());
}

}  // namespace collops::control::tcp

#include <algorithm>

#include "collops/comm/control/bootstrap/roles.h"

namespace collops::control {
namespace {

constexpr double kLingerS = 0.8;

}  // namespace

// After a failure the leader answers for a moment longer, so that late ranks get the reason, too,
// instead of waiting until their time-out.
void MeetingLeader::Linger(const Status& reason) {
  const Deadline deadline = Deadline::After(kLingerS);
  // No rank is introduced any more, and accepting a client takes a descriptor.
  spare_.reset();
  told_reason_ = left_;
  told_reason_.set(0);
  while (listener_.valid() && told_reason_.count() < static_cast<size_t>(spec_.rank_size) &&
         !deadline.Passed() && Wanted()) {
    (void)AcceptClients();
    for (Client& client : clients_) SendReason(&client, reason);
    PollSockets({listener_.get()});
  }
  // Clients that are still connecting see the socket close without a verdict, and try again.
  listener_.reset();
  clients_.clear();
}

// Sends a client the reason, once its hello has arrived.
void MeetingLeader::SendReason(Client* client, const Status& reason) {
  if (!client->socket.valid() || (client->rank_size == 0 && !ReadHello(client))) return;
  // A client that was told before wants a new meeting: it waits until this leader closes.
  const auto is_told = [client](const Origin& told) {
    return told.maker == client->origin.maker && told.made < client->origin.made;
  };
  if (std::any_of(told_makers_.begin(), told_makers_.end(), is_told)) return;
  told_makers_.push_back({client->origin.maker, Origin::Clock::now()});
  SendVerdict(client->socket.get(), reason);
  client->socket.reset();
  if (client->claim > 0) told_reason_.set(static_cast<size_t>(client->claim));
}

// Takes a hello without its descriptors: there may be no room for them.
bool MeetingLeader::ReadHello(Client* client) {
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  const Transfer transfer = ReceiveMessage(client->socket.get(), &message, &fds);
  if (transfer == Transfer::kWouldBlock) return false;
  if (transfer != Transfer::kClosed && message.type == MessageType::kOtherVersion) {
    client->rank_size = spec_.rank_size;
    return true;
  }
  if (transfer == Transfer::kClosed || message.type != MessageType::kHello ||
      message.rank_size <= 0) {
    client->socket.reset();
    return false;
  }
  client->peer.pid = message.pid;
  client->claim = message.rank >= 0 && message.rank < kMaxRanks ? message.rank : -1;
  client->rank_size = message.rank_size;
  client->origin = message.origin;
  return true;
}

void MeetingLeader::Cancel(const Status& reason) {
  if (listener_.valid()) (void)AcceptClients();
  // Clients of groups of another size wait for another leader; their hello may not have arrived.
  for (const Client& client : clients_) {
    if (client.socket.valid()) SendVerdict(client.socket.get(), reason, spec_.rank_size);
  }
  listener_.reset();
  spare_.reset();
  clients_.clear();
}

}  // namespace collops::control

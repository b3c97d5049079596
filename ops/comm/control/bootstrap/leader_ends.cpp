#include <algorithm>

#include "comm/control/bootstrap/roles.h"

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
  told_why_ = left_;
  told_why_.set(0);
  while (listener_.valid() && told_why_.count() < static_cast<size_t>(spec_.rank_size) &&
         !deadline.Passed() && Wanted()) {
    (void)AcceptGuests();
    for (Guest& guest : guests_) Dismiss(&guest, reason);
    PollSockets({listener_.get()});
  }
  // Clients that are still connecting see the socket close without a verdict, and try again.
  listener_.reset();
  guests_.clear();
}

// Sends a client the reason, once its hello has arrived.
void MeetingLeader::Dismiss(Guest* guest, const Status& reason) {
  if (!guest->socket.valid() || (guest->rank_size == 0 && !HearWho(guest))) return;
  // A client that was told before wants a new meeting: it waits until this leader closes.
  const auto is_told = [guest](const Origin& told) {
    return told.maker == guest->origin.maker && told.made < guest->origin.made;
  };
  if (std::any_of(told_makers_.begin(), told_makers_.end(), is_told)) return;
  told_makers_.push_back({guest->origin.maker, Origin::Clock::now()});
  SendVerdict(guest->socket.get(), reason);
  guest->socket.reset();
  if (guest->claim > 0) told_why_.set(static_cast<size_t>(guest->claim));
}

// Takes a hello without its descriptors: there may be no room for them.
bool MeetingLeader::HearWho(Guest* guest) {
  MeetingMessage message;
  std::vector<UniqueFd> fds;
  const Transfer transfer = ReceiveMessage(guest->socket.get(), &message, &fds);
  if (transfer == Transfer::kWouldBlock) return false;
  if (transfer == Transfer::kClosed || message.type != MessageType::kHello ||
      message.rank_size <= 0) {
    guest->socket.reset();
    return false;
  }
  guest->peer.pid = message.pid;
  guest->claim = message.rank >= 0 && message.rank < kMaxRanks ? message.rank : -1;
  guest->rank_size = message.rank_size;
  guest->origin = message.origin;
  return true;
}

void MeetingLeader::Cancel(const Status& reason) {
  if (listener_.valid()) (void)AcceptGuests();
  // Clients of groups of another size wait for another leader; their hello may not have arrived.
  for (const Guest& guest : guests_) {
    if (guest.socket.valid()) SendVerdict(guest.socket.get(), reason, spec_.rank_size);
  }
  listener_.reset();
  spare_.reset();
  guests_.clear();
}

}  // namespace collops::control

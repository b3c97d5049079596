#include <algorithm>

#include "comm/control/bootstrap/roles.h"

namespace collops::control {
namespace {

constexpr double kLingerS = 0.8;

}  // namespace

// A meeting that cannot succeed stays open for a moment, so that ranks that come a little later
// hear why as well instead of waiting for their time-out.
void MeetingLeader::Linger(const Status& reason) {
  const Deadline deadline = Deadline::After(kLingerS);
  // Nobody is introduced any more, and to accept who comes takes a descriptor.
  spare_.reset();
  told_why_ = left_;
  told_why_.set(0);
  while (listener_.valid() && told_why_.count() < static_cast<size_t>(spec_.rank_size) &&
         !deadline.Passed() && Wanted()) {
    (void)AcceptGuests();
    for (Guest& guest : guests_) Dismiss(&guest, reason);
    PollSockets({listener_.get()});
  }
  // Who is still there, or just coming, sees this meeting close without a word and tries again.
  listener_.reset();
  guests_.clear();
}

// Tells a guest why the meeting ends, once it has said who it is.
void MeetingLeader::Dismiss(Guest* guest, const Status& reason) {
  if (!guest->socket.valid() || (guest->rank_size == 0 && !HearWho(guest))) return;
  // Who has been told and comes again wants a new meeting: it waits for this one to close.
  const auto is_told = [guest](const Origin& told) {
    return told.maker == guest->origin.maker && told.made < guest->origin.made;
  };
  if (std::any_of(told_makers_.begin(), told_makers_.end(), is_told)) return;
  told_makers_.push_back({guest->origin.maker, Origin::Clock::now()});
  SendVerdict(guest->socket.get(), reason);
  guest->socket.reset();
  if (guest->claim > 0) told_why_.set(static_cast<size_t>(guest->claim));
}

// Takes a hello, but not the descriptors in it: there may be no room for them.
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
  // Who wants a group of another size waits for another meeting, and may not have said so yet.
  for (const Guest& guest : guests_) {
    if (guest.socket.valid()) SendVerdict(guest.socket.get(), reason, spec_.rank_size);
  }
  listener_.reset();
  spare_.reset();
  guests_.clear();
}

}  // namespace collops::control

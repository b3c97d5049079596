#include "collops/comm/control/first_contact/rendezvous.h"

#include <unistd.h>

#include <utility>

#include "collops/comm/control/board.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/local_socket.h"
#include "collops/comm/control/first_contact/messages.h"
#include "collops/core/sha256.h"

namespace collops::control {
namespace {

constexpr const char* kNamePurpose = "collops: where the ranks of a host find the one that speaks";

}  // namespace

// A hash with the key of the job, as ranks with another key are another group. Names are no secret:
// it is the user that both ends check.
std::string HostRelay::NameOf(const RendezvousSpec& spec) {
  FieldWriter fields;
  fields.Text(kNamePurpose).Number(kProtocolVersion).Number(geteuid()).Text(HostIdentity());
  fields.Text(spec.host).Number(static_cast<uint64_t>(spec.port)).Text(spec.secret.job_id);
  fields.Text(spec.domain).Number(spec.meeting).Number(static_cast<uint64_t>(spec.rank_size));
  const std::string& key = spec.secret.key.empty() ? spec.secret.job_id : spec.secret.key;
  return "collops-" + Hex(HmacSha256(key, fields.text()));
}

bool HostRelay::Open(const std::string& name) {
  listener_ = control::Listen(name);
  open_ = listener_.valid();
  return open_;
}

UniqueFd HostRelay::Reach(const std::string& name, pid_t* pid) {
  UniqueFd socket = ConnectTo(name);
  uid_t uid = 0;
  return socket.valid() && SameUser(socket, pid, &uid) ? std::move(socket) : UniqueFd();
}

void HostRelay::Tell(const Frame& frame) {
  if (frame == latest_) return;
  latest_ = frame;
  ++waits_made_;
}

// Processes of this user alone. Others are dropped, so many in a round that they do not keep this
// thread from its ranks.
Status HostRelay::Accept() {
  for (int i = 0; i < kMaxRanks && listener_.valid(); ++i) {
    if (followers_.size() >= static_cast<size_t>(kMaxRanks)) break;
    UniqueFd socket = control::Accept(listener_);
    if (!socket.valid()) return OutOfDescriptors() ? TooManyFiles() : Ok();
    pid_t pid = 0;
    uid_t uid = 0;
    if (!SameUser(socket, &pid, &uid)) continue;
    followers_.push_back({Connection(std::move(socket), Concat("process ", pid))});
    followers_.back().connection.LimitFrames(kMostLocalFrameBytes);
  }
  return Ok();
}

void HostRelay::Complete() {
  listener_.reset();
  followers_.remove_if([](const Follower& follower) { return follower.rank < 0; });
}

Status HostRelay::Serve(Connection* rank_0) {
  COLLOPS_RETURN_IF_ERROR(Accept());
  for (Follower& follower : followers_) {
    Send(&follower);
    Hear(&follower, rank_0);
  }
  followers_.remove_if([](const Follower& follower) { return !follower.connection.alive(); });
  return Ok();
}

// A follower that does not read holds up itself alone.
void HostRelay::Send(Follower* follower) const {
  Connection& connection = follower->connection;
  while (follower->passed < passed_.size() && connection.Send(passed_[follower->passed])) {
    ++follower->passed;
  }
  if (follower->waits_sent != waits_made_ && connection.Send(latest_))
    follower->waits_sent = waits_made_;
}

void HostRelay::Hear(Follower* follower, Connection* rank_0) {
  Connection& connection = follower->connection;
  Frame frame;
  while (connection.Receive(&frame)) HearMessage(follower, frame, rank_0);
  const bool lost = !connection.alive() && follower->rank >= 0 && !follower->left;
  if (!lost || rank_0 == nullptr) return;
  FieldWriter ended = MessageOf(MessageKind::kEnded, follower->rank);
  ended.Text(connection.state() == ConnectionState::kBroken
                 ? "it sent an invalid frame"
                 : "it closed its connection to the rank that speaks for its host");
  static_cast<void>(rank_0->Send(ended.frame()));
}

// A follower speaks once it knows the relay, who has a connection then: its row, and that it is
// well; or at any time why it leaves.
void HostRelay::HearMessage(Follower* follower, const Frame& frame, Connection* rank_0) {
  FieldReader fields(frame);
  const auto kind = static_cast<MessageKind>(fields.Number());
  const bool first = follower->rank < 0;
  bool sound = false;
  if (kind == MessageKind::kRow && first) {
    const Row row = Row::Read(&fields);
    sound = fields.Done();
    if (sound) follower->rank = row.rank;
  } else if (kind == MessageKind::kDone || kind == MessageKind::kLeft) {
    const int rank = fields.Int(0, kMaxGroupRanks - 1);
    sound = fields.valid() && (rank == follower->rank || (first && kind == MessageKind::kLeft));
    follower->left = sound && kind == MessageKind::kLeft;
  }
  if (!sound || rank_0 == nullptr || !rank_0->Send(frame)) {
    follower->connection.Break("sent an invalid frame");
  }
}

void HostRelay::AddPolled(std::vector<pollfd>* polled) const {
  const bool accepts = listener_.valid() && followers_.size() < static_cast<size_t>(kMaxRanks);
  if (accepts) polled->push_back({listener_.get(), POLLIN, 0});
  for (const Follower& follower : followers_) polled->push_back(follower.connection.Polled());
}

void HostRelay::Finish(const Deadline& deadline) {
  listener_.reset();
  const auto behind = [&](const Follower& follower) {
    return follower.connection.alive() && follower.passed < passed_.size();
  };
  for (Follower& follower : followers_) {
    do {
      Send(&follower);
    } while (behind(follower) && !deadline.Passed() && poll(nullptr, 0, 1) == 0);
    follower.connection.Finish(deadline);
  }
  followers_.clear();
  passed_ = {};
  open_ = false;
}

void HostRelay::End(const Status& reason, const Deadline& deadline) {
  static_cast<void>(Accept());
  Pass(VerdictFrame(reason));
  Finish(deadline);
}

}  // namespace collops::control

#include "comm/control/tcp/first_contact/host_speaker.h"

#include <unistd.h>

#include <utility>

#include "comm/control/board.h"
#include "comm/control/bootstrap/socket.h"
#include "comm/control/tcp/host_identity.h"
#include "comm/control/tcp/row.h"
#include "core/sha256.h"

namespace collops::control::tcp {
namespace {

constexpr const char* kPurpose = "collops: where the ranks of a host find the one that speaks";

}  // namespace

// A hash with the key of the job: the name says nothing, and only who knows the key finds it.
std::string HostSpeaker::NameOf(const RendezvousSpec& spec) {
  FieldWriter fields;
  fields.Text(kPurpose).Number(kProtocolVersion).Number(geteuid()).Text(HostIdentity());
  fields.Text(spec.host).Number(static_cast<uint64_t>(spec.port)).Text(spec.secret.job_id);
  fields.Text(spec.domain).Number(spec.meeting).Number(static_cast<uint64_t>(spec.rank_size));
  const std::string& key = spec.secret.key.empty() ? spec.secret.job_id : spec.secret.key;
  return "collops-" + Hex(HmacSha256(key, fields.text()));
}

bool HostSpeaker::Open(const std::string& name) {
  listener_ = control::Listen(name, Carries::kBytes);
  return listener_.valid();
}

UniqueFd HostSpeaker::Reach(const std::string& name, pid_t* pid) {
  UniqueFd socket = ConnectTo(name, Carries::kBytes);
  uid_t uid = 0;
  return socket.valid() && SameUser(socket, pid, &uid) ? std::move(socket) : UniqueFd();
}

void HostSpeaker::Tell(const Frame& frame) {
  if (frame == latest_) return;
  latest_ = frame;
  ++num_told_;
}

// Processes of this user alone; how many of them wait at once is limited by the ranks of a host.
void HostSpeaker::Accept() {
  while (listener_.valid() && followers_.size() < static_cast<size_t>(kMaxRanks)) {
    UniqueFd socket = control::Accept(listener_);
    if (!socket.valid()) return;
    pid_t pid = 0;
    uid_t uid = 0;
    if (!SameUser(socket, &pid, &uid)) continue;
    followers_.push_back({Connection(std::move(socket), Concat("process ", pid, " of this host"))});
  }
}

void HostSpeaker::Serve(Connection* rank_0) {
  Accept();
  for (Follower& follower : followers_) {
    Send(&follower);
    Hear(&follower, rank_0);
  }
  followers_.remove_if([](const Follower& follower) { return !follower.connection.alive(); });
}

// A follower that does not read holds up itself alone.
void HostSpeaker::Send(Follower* follower) const {
  Connection& connection = follower->connection;
  while (follower->passed < passed_.size() && connection.Send(passed_[follower->passed])) {
    ++follower->passed;
  }
  if (follower->told != num_told_ && connection.Send(latest_)) follower->told = num_told_;
}

void HostSpeaker::Hear(Follower* follower, Connection* rank_0) {
  Connection& connection = follower->connection;
  Frame frame;
  while (connection.Receive(&frame)) HearNote(follower, frame, rank_0);
  const bool lost = !connection.alive() && follower->rank >= 0 && !follower->left;
  if (!lost || rank_0 == nullptr) return;
  FieldWriter ended = NoteOf(Note::kEnded, follower->rank);
  ended.Text(connection.ended().message());
  static_cast<void>(rank_0->Send(ended.frame()));
}

// Its row first, which it makes when it knows the speaker, who has a connection then.
void HostSpeaker::HearNote(Follower* follower, const Frame& frame, Connection* rank_0) {
  FieldReader fields(frame);
  const auto note = static_cast<Note>(fields.Number());
  const bool first = follower->rank < 0;
  const bool sound = rank_0 != nullptr && first == (note == Note::kRow);
  if (sound && note == Note::kRow) {
    const Row row = Row::Read(&fields);
    follower->rank = row.rank;
    if (fields.Done()) return static_cast<void>(rank_0->Send(frame));
  }
  if (sound && note == Note::kDone) {
    return static_cast<void>(rank_0->Send(NoteOf(Note::kDone, follower->rank).frame()));
  }
  if (sound && note == Note::kVerdict) {
    FieldWriter left = NoteOf(Note::kLeft, follower->rank);
    WriteVerdict(ReadVerdict(&fields), &left);
    follower->left = true;
    return static_cast<void>(rank_0->Send(left.frame()));
  }
  follower->connection.Break("sent a frame that cannot be");
}

void HostSpeaker::AddPolled(std::vector<pollfd>* polled) const {
  const bool accepts = listener_.valid() && followers_.size() < static_cast<size_t>(kMaxRanks);
  if (accepts) polled->push_back({listener_.get(), POLLIN, 0});
  for (const Follower& follower : followers_) polled->push_back(follower.connection.Polled());
}

void HostSpeaker::Finish(const Deadline& deadline) {
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
}

void HostSpeaker::End(const Status& reason, const Deadline& deadline) {
  Accept();
  Pass(VerdictFrame(reason));
  Finish(deadline);
}

}  // namespace collops::control::tcp

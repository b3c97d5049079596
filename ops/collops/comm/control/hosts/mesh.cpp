#include "collops/comm/control/hosts/mesh.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collops/core/process/interrupt.h"

namespace collops::control {
namespace {

// The first byte of what a connection carries.
constexpr std::byte kStatus{1};
constexpr std::byte kConfirmation{2};
// A confirmation is sent when so much has been taken.
constexpr uint64_t kConfirmedAtOnce = TcpBridge::kMostUnconfirmed / 4;

constexpr const char* kHosts = "hosts";
constexpr int kPauseMs = 20;

// The connections that one host makes and awaits.
class Mesh {
 public:
  Mesh(std::string domain, std::vector<Row> leaders, int host, const JobSecret* secret,
       Lobby* lobby)
      : domain_(std::move(domain)),
        leaders_(std::move(leaders)),
        host_(host),
        secret_(secret),
        lobby_(lobby),
        applications_(leaders_.size()),
        connections_(leaders_.size()) {}

  Status Complete(const std::function<Status()>& watch, const Deadline& deadline);
  std::vector<Connection> TakeConnections() { return std::move(connections_); }

 private:
  bool IsMissing(size_t host) const {
    return static_cast<int>(host) != host_ && !connections_[host].alive();
  }
  std::string Missing() const;
  Status GoOn(size_t host);
  void Receive();
  void Sleep() const;

  std::string domain_;
  std::vector<Row> leaders_;  // the lowest rank of each host
  int host_;
  const JobSecret* secret_;
  Lobby* lobby_;
  std::vector<std::optional<HandshakeClient>> applications_;
  std::vector<Connection> connections_;
};

std::string Mesh::Missing() const {
  std::string missing;
  for (size_t host = 0; host < leaders_.size(); ++host) {
    if (IsMissing(host)) missing += (missing.empty() ? "" : ", ") + leaders_[host].Who();
  }
  return missing;
}

Status Mesh::Complete(const std::function<Status()>& watch, const Deadline& deadline) {
  for (std::string missing = Missing(); !missing.empty(); missing = Missing()) {
    COLLOPS_CHECK_ARG(!deadline.Passed(), ERROR_TIMEOUT, "no connection to the host of ", missing,
                      " in ", deadline.timeout_s(),
                      " s: may hosts of this job connect to each other's ports?");
    COLLOPS_CHECK_ARG(!Interrupted(), ERROR_ABORTED, "first contact was interrupted");
    if (watch) COLLOPS_RETURN_IF_ERROR(watch());
    for (size_t host = 0; static_cast<int>(host) < host_; ++host) {
      if (IsMissing(host)) COLLOPS_RETURN_IF_ERROR(GoOn(host));
    }
    Receive();
    if (!Missing().empty()) Sleep();
  }
  return Ok();
}

// That host listens already: its row says so. So a refused connection is an error, but one that it
// has closed is tried again: it may have had many strangers, or few descriptors.
Status Mesh::GoOn(size_t host) {
  const Row& row = leaders_[host];
  std::optional<HandshakeClient>& application = applications_[host];
  if (!application) {
    SocketAddress address;
    COLLOPS_CHECK_ARG(ParseNumeric(row.address, row.port, &address), ERROR_PEER_LOST, row.Who(),
                      " has no address");
    const Claim claim = {domain_, kHosts, host_, static_cast<int>(leaders_.size())};
    application.emplace(Connection(address), secret_, claim);
  }
  const Proof proof = application->Step();
  const ConnectionState link = application->connection().state();
  if (proof == Proof::kRefused &&
      (link == ConnectionState::kClosed || link == ConnectionState::kReset)) {
    application.reset();
    static_cast<void>(poll(nullptr, 0, kPauseMs));
    return Ok();
  }
  COLLOPS_CHECK_ARG(proof != Proof::kRefused, ERROR_PEER_LOST, "no connection to the host of ",
                    row.Who(), ": ", application->refusal().message());
  if (proof == Proof::kGiven) connections_[host] = std::move(application->connection());
  return Ok();
}

void Mesh::Receive() {
  for (Proven& one : lobby_->Take(kHosts)) {
    const auto from = static_cast<size_t>(one.claim.rank);
    const bool awaited = one.claim.domain == domain_ && from < leaders_.size() &&
                         one.claim.rank > host_ && IsMissing(from);
    if (awaited) connections_[from] = std::move(one.connection);
  }
}

void Mesh::Sleep() const {
  std::vector<pollfd> polled;
  lobby_->AddPolled(&polled);
  for (size_t host = 0; host < leaders_.size(); ++host) {
    const std::optional<HandshakeClient>& application = applications_[host];
    if (application && IsMissing(host)) polled.push_back(application->connection().Polled());
  }
  AwaitReady(std::move(polled));
}

}  // namespace

TcpBridge::TcpBridge(int own_host, std::vector<Connection> connections) : own_host_(own_host) {
  channels_.reserve(connections.size());
  for (Connection& connection : connections) channels_.emplace_back(std::move(connection));
}

TcpBridge::~TcpBridge() {
  const Deadline deadline = Deadline::After(kFinishS);
  // All end their sending before one is waited for.
  for (Channel& channel : channels_) channel.connection.Flush();
  for (Channel& channel : channels_) channel.connection.Finish(deadline);
}

bool TcpBridge::Tell(int host, const Frame& frame) {
  Channel& channel = channels_[static_cast<size_t>(host)];
  if (channel.sent - channel.confirmed > kMostUnconfirmed) return false;
  Frame marked;
  marked.reserve(frame.size() + 1);
  marked.push_back(kStatus);
  marked.insert(marked.end(), frame.begin(), frame.end());
  if (!channel.connection.Send(marked)) return false;
  channel.sent += marked.size();
  return true;
}

void TcpBridge::Confirm(Channel* channel) {
  if (channel->taken - channel->acknowledged < kConfirmedAtOnce) return;
  Frame frame = FieldWriter().Number(channel->taken).frame();
  frame.insert(frame.begin(), kConfirmation);
  if (channel->connection.Send(frame)) channel->acknowledged = channel->taken;
}

bool TcpBridge::TakeFrom(Channel* channel, Frame* frame) {
  Confirm(channel);
  while (channel->connection.Receive(frame)) {
    const std::byte kind = frame->empty() ? std::byte{0} : frame->front();
    if (!frame->empty()) frame->erase(frame->begin());
    if (kind == kStatus) {
      channel->taken += frame->size() + 1;
      Confirm(channel);
      return true;
    }
    FieldReader fields(*frame);
    const uint64_t confirmed = fields.Number();
    const bool sound = kind == kConfirmation && fields.Done() && confirmed >= channel->confirmed &&
                       confirmed <= channel->sent;
    if (!sound) {
      channel->connection.Break("sent an invalid frame");
      return false;
    }
    channel->confirmed = confirmed;
  }
  return false;
}

bool TcpBridge::Take(int* host, Frame* frame) {
  for (size_t i = 0; i < channels_.size(); ++i) {
    const size_t from = next_;
    next_ = (next_ + 1) % channels_.size();
    if (static_cast<int>(from) == own_host_ || !TakeFrom(&channels_[from], frame)) continue;
    *host = static_cast<int>(from);
    return true;
  }
  return false;
}

bool TcpBridge::Lost(int host) const {
  return host != own_host_ && !channels_[static_cast<size_t>(host)].connection.alive();
}

std::string TcpBridge::WhyLost(int host) const {
  return channels_[static_cast<size_t>(host)].connection.ended().message();
}

void TcpBridge::AddPolled(std::vector<pollfd>* polled) const {
  for (const Channel& channel : channels_) {
    if (channel.connection.alive()) polled->push_back(channel.connection.Polled());
  }
}

Status ConnectHosts(const std::string& domain, const Introduction& introduction, int rank,
                    const std::function<Status()>& watch, const Deadline& deadline,
                    std::vector<Connection>* connections) {
  const std::vector<int> host_of = HostsOf(introduction.rows);
  std::vector<Row> leaders;
  for (size_t r = 0; r < host_of.size(); ++r) {
    if (host_of[r] == static_cast<int>(leaders.size())) leaders.push_back(introduction.rows[r]);
  }
  const std::shared_ptr<Lobby> lobby = introduction.lobby.lock();
  Mesh mesh(domain, std::move(leaders), host_of[static_cast<size_t>(rank)], &introduction.secret,
            lobby.get());
  COLLOPS_RETURN_IF_ERROR(mesh.Complete(watch, deadline));
  *connections = mesh.TakeConnections();
  return Ok();
}

}  // namespace collops::control

#include "collops/comm/control/tcp/mesh.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collops/core/process/interrupt.h"

namespace collops::control::tcp {
namespace {

constexpr const char* kPurpose = "hosts";
constexpr int kLookMs = 50;
constexpr int kPauseMs = 20;

// The connections that one host makes and awaits.
class Mesh {
 public:
  Mesh(std::string domain, std::vector<Row> leaders, int host, const JobSecret* secret, Door* door)
      : domain_(std::move(domain)),
        leaders_(std::move(leaders)),
        host_(host),
        secret_(secret),
        door_(door),
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
  Door* door_;
  std::vector<std::optional<Application>> applications_;
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
  std::optional<Application>& application = applications_[host];
  if (!application) {
    SocketAddress address;
    COLLOPS_CHECK_ARG(ParseNumeric(row.address, row.port, &address), ERROR_PEER_LOST, row.Who(),
                      " has no address");
    const Claim claim = {domain_, kPurpose, host_, static_cast<int>(leaders_.size())};
    application.emplace(Connection(address), secret_, claim);
  }
  const Proof proof = application->Step();
  const Link link = application->connection().link();
  if (proof == Proof::kRefused && (link == Link::kClosed || link == Link::kReset)) {
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
  std::vector<Proven> proven;
  while (door_->Next(&proven)) continue;
  for (Proven& one : proven) {
    const auto from = static_cast<size_t>(one.claim.rank);
    const bool awaited = one.claim.domain == domain_ && one.claim.purpose == kPurpose &&
                         from < leaders_.size() && one.claim.rank > host_ && IsMissing(from);
    if (awaited) connections_[from] = std::move(one.connection);
  }
}

void Mesh::Sleep() const {
  std::vector<pollfd> polled;
  door_->AddPolled(&polled);
  for (size_t host = 0; host < leaders_.size(); ++host) {
    const std::optional<Application>& application = applications_[host];
    if (application && IsMissing(host)) polled.push_back(application->connection().Polled());
  }
  static_cast<void>(poll(polled.data(), polled.size(), kLookMs));
}

}  // namespace

Status ConnectHosts(const std::string& domain, const std::vector<Row>& rows, int rank,
                    const JobSecret& secret, Door* door, const std::function<Status()>& watch,
                    const Deadline& deadline, std::vector<Connection>* connections) {
  const std::vector<int> host_of = HostsOf(rows);
  std::vector<Row> leaders;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (host_of[r] == static_cast<int>(leaders.size())) leaders.push_back(rows[r]);
  }
  Mesh mesh(domain, std::move(leaders), host_of[static_cast<size_t>(rank)], &secret, door);
  COLLOPS_RETURN_IF_ERROR(mesh.Complete(watch, deadline));
  *connections = mesh.TakeConnections();
  door->Close();
  return Ok();
}

}  // namespace collops::control::tcp

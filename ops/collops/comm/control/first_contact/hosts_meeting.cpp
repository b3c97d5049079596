#include "collops/comm/control/first_contact/hosts_meeting.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/core/env.h"
#include "collops/core/process/per_process.h"

namespace collops::control {
namespace {

struct Meetings {
  std::mutex mutex;
  std::map<std::string, uint64_t> made;
};
PerProcess<Meetings> meetings;

// How often this process has met, or begun to meet, in that domain before.
uint64_t CountMeeting(const std::string& domain) {
  Meetings& all = meetings.Get();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return all.made[domain]++;
}

// What a watcher needs of a group: its board, its doorbell, and how the ranks of this host end.
Group ForWatcher(const Group& group) {
  Group copy;
  copy.segment = group.segment;
  copy.host = group.host;
  copy.doorbell = UniqueFd(fcntl(group.doorbell.get(), F_DUPFD_CLOEXEC, 0));
  for (const Peer& peer : group.peers) {
    copy.peers.emplace_back();
    copy.peers.back().pid = peer.pid;
    copy.peers.back().host = peer.host;
    copy.peers.back().lifeline = peer.lifeline;
  }
  return copy;
}

}  // namespace

std::string ProofNameOf(const GroupSpec& spec) {
  constexpr size_t kMostNameBytes = 256;
  const std::string name = spec.comm_domain + spec.meeting;
  return name.size() <= kMostNameBytes ? name : name.substr(name.size() - kMostNameBytes);
}

HostRanks::HostRanks(const GroupSpec& spec, const JobIdentity& job, const std::vector<Row>& rows,
                     std::string host_name, int64_t segment_bytes)
    : host_of_(HostsOf(rows)),
      host_(host_of_[static_cast<size_t>(spec.rank)]),
      host_name_(std::move(host_name)) {
  for (size_t r = 0; r < rows.size(); ++r) {
    pids_.push_back(rows[r].pid);
    if (host_of_[r] == host_) own_.push_back(static_cast<int>(r));
  }
  GroupSpec local = spec;
  local.rank = static_cast<int>(std::find(own_.begin(), own_.end(), spec.rank) - own_.begin());
  local.rank_size = static_cast<int>(own_.size());
  // Two hosts of a test may share one abstract namespace.
  const JobIdentity place = {Concat(job.id, "/host/", host_), job.source};
  meeting_ = Meeting::Create(local, place, segment_bytes, true);
}

Status HostRanks::Complete(const Deadline& deadline, Group* group) {
  COLLOPS_CHECK_ARG(own_.size() <= static_cast<size_t>(kMaxRanks), ERROR_UNSUPPORTED, "host ",
                    host_name_, " has ", own_.size(), " ranks of the group: at most ", kMaxRanks,
                    " on a host");
  Group local;
  const Status met = meeting_->Complete(deadline, &local);
  if (met.ok()) {
    Expand(std::move(local), group);
    return Ok();
  }
  std::string list;
  for (const int rank : own_) list += Concat(list.empty() ? "" : ", ", rank);
  return Error(met.code(), "ranks ", list, " of host ", host_name_, ", there numbered 0 to ",
               own_.size() - 1, ": ", met.message());
}

bool HostRanks::TryComplete(Group* group) {
  Group local;
  if (!meeting_->TryComplete(&local)) return false;
  Expand(std::move(local), group);
  return true;
}

void HostRanks::Expand(Group local, Group* group) const {
  group->segment = std::move(local.segment);
  group->inbox = std::move(local.inbox);
  group->doorbell = std::move(local.doorbell);
  group->host = host_;
  group->peers.clear();
  group->peers.resize(pids_.size());
  for (size_t r = 0; r < pids_.size(); ++r) {
    group->peers[r].pid = pids_[r];
    group->peers[r].host = host_of_[r];
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    Peer& peer = group->peers[static_cast<size_t>(own_[i])];
    peer = std::move(local.peers[i]);
    peer.host = host_;
  }
}

Status OpenMeetingPort(const std::string& host, const std::string& job_id,
                       std::shared_ptr<JobPort>* port) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  JobIdentity job;
  COLLOPS_RETURN_IF_ERROR(FindMeetingPlace(false, job_id, "", &job));
  SocketAddress address;
  COLLOPS_CHECK_ARG(ParseNumeric(host, 0, &address), ERROR_INVALID_PARAM, "\"", host,
                    "\" is not an address of this host");
  return JobPort::OpenFree(address, {job.id, env.job_key}, port);
}

namespace {

// By rank, the host on which the table places it.
std::vector<std::string> HostsOfTable(const RankTable& table) {
  std::vector<std::string> hosts;
  for (const RankTable::Rank& rank : table.ranks) {
    const RankTable::Server& server = table.servers[static_cast<size_t>(rank.server)];
    HostAddress numeric;
    const std::string name = ParseAddress(server.id, &numeric) ? "" : server.id;
    hosts.push_back(HostText(Printable(name, kMostHostNameBytes),
                             Printable(server.address(), kMostHostNameBytes)));
  }
  return hosts;
}

}  // namespace

Status HostsMeeting::Create(const GroupSpec& spec, const JobIdentity& job, const JobPlace& place,
                            const std::shared_ptr<const RankTable>& table, int64_t segment_bytes,
                            std::unique_ptr<Meeting>* meeting) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  RendezvousSpec rendezvous;
  // Ranks of different backends do not meet.
  rendezvous.domain = spec.backend + "/" + spec.comm_domain;
  rendezvous.rank = spec.rank;
  rendezvous.rank_size = spec.rank_size;
  rendezvous.voice = spec.voice;
  rendezvous.host = place.address;
  rendezvous.port = place.port == 0 ? env.port : place.port;
  rendezvous.has_port = place.is_first;
  rendezvous.secret = {job.id, env.job_key};
  rendezvous.comm_domain = spec.comm_domain;
  rendezvous.job = DescribeJob(job);
  if (table != nullptr) rendezvous.hosts = HostsOfTable(*table);
  rendezvous.meeting = CountMeeting(Concat(job.id, "/", rendezvous.domain));
  *meeting = std::make_unique<HostsMeeting>(spec, job, rendezvous, segment_bytes);
  return Ok();
}

HostsMeeting::HostsMeeting(const GroupSpec& spec, const JobIdentity& job,
                           const RendezvousSpec& rendezvous, int64_t segment_bytes)
    : Meeting(spec),
      spec_(spec),
      job_(job),
      segment_bytes_(segment_bytes),
      introduction_(std::make_shared<Introduction>()),
      rendezvous_(Rendezvous::Create(rendezvous)) {
  introduction_->secret = rendezvous.secret;
  introduction_->port = rendezvous.port;
  // The meeting of this host's ranks ends when this one is stopped, or a rank elsewhere fails.
  spec_.watch = [this, watch = WatchOfPart()] {
    if (met_ && Wanted()) COLLOPS_RETURN_IF_ERROR(rendezvous_->Look());
    return watch();
  };
}

HostsMeeting::HostsMeeting(const GroupSpec& spec, const JobIdentity& job, int64_t segment_bytes)
    : Meeting(spec),
      spec_(spec),
      job_(job),
      segment_bytes_(segment_bytes),
      introduction_(spec.introduction) {
  spec_.watch = WatchOfPart();
  MakeHost();
}

void HostsMeeting::MakeHost() {
  host_ = std::make_unique<HostRanks>(spec_, job_, introduction_->rows, introduction_->address,
                                      segment_bytes_);
}

void HostsMeeting::Begin() {
  if (rendezvous_ != nullptr) return rendezvous_->Begin();
  host_->Begin();
}

void HostsMeeting::Stop() {
  Meeting::Stop();
  if (rendezvous_ != nullptr) rendezvous_->Stop();
}

void HostsMeeting::Cancel(const Status& reason) {
  if (rendezvous_ == nullptr) return host_->Cancel(reason);
  if (came_.exchange(true)) return;
  cancelled_ = reason;
  owes_word_ = true;
}

void HostsMeeting::TellCancelled() {
  if (owes_word_.exchange(false)) rendezvous_->Leave(cancelled_);
}

Status HostsMeeting::Complete(const Deadline& deadline, Group* group) {
  if (rendezvous_ == nullptr) return Join(introduction_->lobby.lock(), deadline, group);
  came_ = true;
  COLLOPS_RETURN_IF_ERROR(rendezvous_->Complete(deadline, &introduction_->rows));
  met_ = true;
  introduction_->address = introduction_->rows[static_cast<size_t>(spec_.rank)].address;
  introduction_->unreachable = rendezvous_->unreachable();
  const auto lobby = std::make_shared<Lobby>(rendezvous_->TakeListener());
  introduction_->lobby = lobby;
  MakeHost();
  host_->Begin();
  const Status joined = Join(lobby, deadline, group);
  host_.reset();
  const Status all = rendezvous_->Finish(joined, deadline);
  met_ = false;
  // Whoever has reached this rank is not to wait for it.
  if (!all.ok()) group->lobby.reset();
  return all;
}

Status HostsMeeting::Join(const std::shared_ptr<Lobby>& lobby, const Deadline& deadline,
                          Group* group) {
  COLLOPS_CHECK_ARG(lobby != nullptr, ERROR_ABORTED, "rank ", spec_.rank, " has left");
  COLLOPS_RETURN_IF_ERROR(host_->Complete(deadline, group));
  group->address = introduction_->address;
  const bool is_subgroup = rendezvous_ == nullptr && spec_.meeting.empty();
  if (!is_subgroup) {
    group->introduction = introduction_;
    group->lobby = lobby;
  }
  if (!host_->ConnectsHost(spec_.rank)) return Ok();
  std::vector<Connection> connections;
  COLLOPS_RETURN_IF_ERROR(ConnectHosts(ProofNameOf(spec_), *introduction_, spec_.rank, spec_.watch,
                                       deadline, &connections));
  auto bridge = std::make_unique<TcpBridge>(group->host, std::move(connections));
  group->watcher =
      std::make_shared<Watcher>(ForWatcher(*group), spec_.rank_size, std::move(bridge));
  return Ok();
}

bool OnSeveralHosts(const Group& group, const std::vector<int>& ranks) {
  return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
    return group.peers[static_cast<size_t>(rank)].host !=
           group.peers[static_cast<size_t>(ranks.front())].host;
  });
}

}  // namespace collops::control

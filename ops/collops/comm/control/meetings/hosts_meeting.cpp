#include "collops/comm/control/meetings/hosts_meeting.h"

#include <fcntl.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/control/bootstrap/host_ranks.h"
#include "collops/comm/control/hosts/watcher.h"
#include "collops/comm/control/tcp/mesh.h"
#include "collops/comm/control/tcp/tcp_bridge.h"
#include "collops/core/env.h"
#include "collops/core/process/per_process.h"

namespace collops::control {
namespace {

UniqueFd Duplicate(const UniqueFd& fd) {
  return fd.valid() ? UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)) : UniqueFd();
}

// What a watcher needs of a group: its board, its bell, and how the ranks of this host end.
Group ForWatcher(const Group& group) {
  Group copy;
  copy.segment = group.segment;
  copy.host = group.host;
  copy.bell = Duplicate(group.bell);
  for (const Peer& peer : group.peers) {
    copy.peers.emplace_back();
    copy.peers.back().pid = peer.pid;
    copy.peers.back().host = peer.host;
    copy.peers.back().lifeline = peer.lifeline;
  }
  return copy;
}

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

}  // namespace

Status JoinHosts(const CommunicatorSpec& spec, const HostsToJoin& hosts, const Deadline& deadline,
                 Group* group) {
  std::vector<tcp::Connection> connections;
  COLLOPS_RETURN_IF_ERROR(tcp::ConnectHosts(hosts.domain, hosts.rows, spec.rank, hosts.secret,
                                            hosts.door, hosts.watch, deadline, &connections));
  auto bridge = std::make_unique<tcp::TcpBridge>(group->host, std::move(connections));
  group->watcher = std::make_shared<Watcher>(ForWatcher(*group), spec.rank_size, std::move(bridge));
  return Ok();
}

Status OpenMeetingPort(const std::string& host, const std::string& job_id,
                       std::shared_ptr<tcp::JobPort>* port) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  JobIdentity job;
  COLLOPS_RETURN_IF_ERROR(FindMeetingPlace(false, job_id, "", &job));
  tcp::SocketAddress address;
  COLLOPS_CHECK_ARG(tcp::ParseNumeric(host, 0, &address), ERROR_INVALID_PARAM, "\"", host,
                    "\" is not an address of this host");
  return tcp::JobPort::OpenFree(address, {job.id, env.job_key}, port);
}

Status HostsMeeting::Create(const CommunicatorSpec& spec, const JobIdentity& job,
                            const JobPlace& place, int64_t segment_bytes,
                            std::unique_ptr<Meeting>* meeting) {
  Env env;
  COLLOPS_RETURN_IF_ERROR(Env::Read(&env));
  tcp::RendezvousSpec rendezvous;
  // Ranks of different backends do not meet.
  rendezvous.domain = spec.backend + "/" + spec.comm_domain;
  rendezvous.rank = spec.rank;
  rendezvous.rank_size = spec.rank_size;
  rendezvous.host = place.address;
  rendezvous.port = place.port == 0 ? env.port : place.port;
  rendezvous.has_port = place.is_first;
  rendezvous.secret = {job.id, env.job_key};
  rendezvous.meeting = CountMeeting(Concat(job.id, "/", rendezvous.domain));
  *meeting = std::make_unique<HostsMeeting>(spec, job, rendezvous, segment_bytes);
  return Ok();
}

HostsMeeting::HostsMeeting(const CommunicatorSpec& spec, const JobIdentity& job,
                           const tcp::RendezvousSpec& rendezvous, int64_t segment_bytes)
    : spec_(spec),
      job_(job),
      rendezvous_spec_(rendezvous),
      segment_bytes_(segment_bytes),
      rendezvous_(tcp::Rendezvous::Create(rendezvous)) {
  // The meeting of this host's ranks ends when this one is stopped, or a rank elsewhere fails.
  spec_.watch = [this, watch = spec.watch] {
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    if (met_) COLLOPS_RETURN_IF_ERROR(rendezvous_->Look());
    return watch ? watch() : Ok();
  };
}

void HostsMeeting::Stop() {
  Meeting::Stop();
  rendezvous_->Stop();
}

void HostsMeeting::Cancel(const Status& reason) {
  if (came_.exchange(true)) return;
  cancelled_ = reason;
  owes_word_ = true;
}

void HostsMeeting::TellCancelled() {
  if (owes_word_.exchange(false)) rendezvous_->Leave(cancelled_);
}

Status HostsMeeting::Complete(const Deadline& deadline, Group* group) {
  came_ = true;
  std::vector<tcp::Row> rows;
  COLLOPS_RETURN_IF_ERROR(rendezvous_->Complete(deadline, &rows));
  met_ = true;
  const Status joined = Join(rows, deadline, group);
  const Status all = rendezvous_->Finish(joined, deadline);
  met_ = false;
  rendezvous_->door()->Close();
  return all;
}

Status HostsMeeting::Join(const std::vector<tcp::Row>& rows, const Deadline& deadline,
                          Group* group) {
  const std::vector<int> host_of = tcp::HostsOf(rows);
  std::vector<RankOnHost> ranks;
  for (size_t r = 0; r < rows.size(); ++r) ranks.push_back({host_of[r], rows[r].pid});
  const auto own = static_cast<size_t>(spec_.rank);
  HostRanks host(spec_, job_, ranks, rows[own].address, segment_bytes_);
  host.Begin();
  COLLOPS_RETURN_IF_ERROR(host.Complete(deadline, group));
  const bool several = *std::max_element(host_of.begin(), host_of.end()) > 0;
  const bool lowest = RanksOn(ranks, host_of[own]).front() == spec_.rank;
  group->address = rows[own].address;
  if (!several || !lowest) return Ok();
  const HostsToJoin hosts = {rendezvous_spec_.domain, rows, rendezvous_spec_.secret,
                             rendezvous_->door(), spec_.watch};
  return JoinHosts(spec_, hosts, deadline, group);
}

}  // namespace collops::control

#include "collops/comm/control/first_contact/hosts_meeting.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/control/board.h"
#include "collops/comm/control/tcp/mesh.h"
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

}  // namespace

std::vector<int> RanksOn(const std::vector<RankOnHost>& ranks, int host) {
  std::vector<int> on_host;
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].host == host) on_host.push_back(static_cast<int>(r));
  }
  return on_host;
}

HostRanks::HostRanks(const GroupSpec& spec, const JobIdentity& job, std::vector<RankOnHost> ranks,
                     std::string host_name, int64_t segment_bytes)
    : ranks_(std::move(ranks)),
      host_(ranks_[static_cast<size_t>(spec.rank)].host),
      host_name_(std::move(host_name)) {
  own_ = RanksOn(ranks_, host_);
  GroupSpec local = spec;
  local.rank = static_cast<int>(std::find(own_.begin(), own_.end(), spec.rank) - own_.begin());
  local.rank_size = static_cast<int>(own_.size());
  // The meeting stops with this one. Two hosts of a test may share one abstract namespace.
  local.watch = [this, watch = spec.watch] {
    COLLOPS_RETURN_IF_ERROR(CheckWanted());
    return watch ? watch() : Ok();
  };
  const JobIdentity place = {Concat(job.id, "/host/", host_), job.source};
  meeting_ = Meeting::Create(local, place, segment_bytes, true);
}

Status HostRanks::Complete(const Deadline& deadline, Group* group) {
  COLLOPS_CHECK_ARG(own_.size() <= static_cast<size_t>(kMaxRanks), ERROR_UNSUPPORTED, "host ",
                    host_name_, " has ", own_.size(), " ranks of the group: at most ", kMaxRanks,
                    " on a host");
  Group local;
  const Status met = meeting_->Complete(deadline, &local);
  if (!met.ok()) {
    return Error(met.code(), "ranks ", ListRanks(), " of host ", host_name_,
                 ", there numbered 0 to ", own_.size() - 1, ": ", met.message());
  }
  Expand(std::move(local), group);
  return Ok();
}

bool HostRanks::Settle(Group* group) {
  Group local;
  if (!meeting_->Settle(&local)) return false;
  Expand(std::move(local), group);
  return true;
}

void HostRanks::Expand(Group local, Group* group) const {
  group->segment = std::move(local.segment);
  group->inbox = std::move(local.inbox);
  group->doorbell = std::move(local.doorbell);
  group->host = host_;
  group->peers.clear();
  group->peers.resize(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    group->peers[r].pid = ranks_[r].pid;
    group->peers[r].host = ranks_[r].host;
  }
  for (size_t i = 0; i < own_.size(); ++i) {
    Peer& peer = group->peers[static_cast<size_t>(own_[i])];
    peer = std::move(local.peers[i]);
    peer.host = host_;
  }
}

std::string HostRanks::ListRanks() const {
  std::string list;
  for (const int rank : own_) list += Concat(list.empty() ? "" : ", ", rank);
  return list;
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

Status HostsMeeting::Create(const GroupSpec& spec, const JobIdentity& job, const JobPlace& place,
                            int64_t segment_bytes, std::unique_ptr<Meeting>* meeting) {
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

HostsMeeting::HostsMeeting(const GroupSpec& spec, const JobIdentity& job,
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
  rendezvous_->listener()->Close();
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
                             rendezvous_->listener(), spec_.watch};
  return JoinHosts(spec_, hosts, deadline, group);
}

}  // namespace collops::control

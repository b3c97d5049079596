#include "collops/comm/placement/job_place.h"

#include <charconv>
#include <utility>

#include "collops/comm/placement/host_address.h"
#include "collops/comm/placement/placement.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/env.h"

namespace collops {
namespace {

bool IsLoopback(const std::string& host) {
  HostAddress address;
  if (!ParseAddress(host, &address)) return host == "localhost";
  constexpr size_t kBytesV4 = 4;
  constexpr char kLoopbackNet = 127;
  if (address.size() == kBytesV4) return address.front() == kLoopbackNet;
  return address == std::string(15, '\0') + '\1';
}

const std::string& AddressOf(const RankTable& table) {
  const auto server = static_cast<size_t>(table.ranks.front().server);
  const RankTable::Server& first = table.servers[server];
  return first.host_ip.empty() ? first.id : first.host_ip;
}

// The table of the whole job, and this process's rank there; the table is null if there is none.
Status FindJobTable(const std::shared_ptr<const RankTable>& table, int rank, Placement* job) {
  job->table = table;
  job->rank = rank;
  const std::string path = GetVariable("RANK_TABLE_FILE");
  if (path.empty() || (table != nullptr && table->path == path)) return Ok();
  Placement listed;
  COLLOPS_RETURN_IF_ERROR(FindPlacement({}, &listed));
  if (listed.table == nullptr) return Ok();
  COLLOPS_CHECK_ARG(
      listed.table->completed, ERROR_INVALID_PARAM, listed.table->file,
      ": its status is \"initializing\", but it says where the job of this group meets: wait ",
      "until it is complete");
  *job = std::move(listed);
  return Ok();
}

Status FindByLauncher(const Launcher& launcher, JobPlace* place) {
  if (launcher.spread == Spread::kOneHost) return Ok();
  const std::string address = GetVariable("MASTER_ADDR");
  COLLOPS_CHECK_ARG(
      !address.empty() || launcher.spread == Spread::kUnknown, ERROR_INVALID_PARAM,
      "the ranks run on several hosts (from ", launcher.name,
      "), but nothing says where they meet: "
      "set MASTER_ADDR to an address of rank 0's host, the same in all ranks, or pass a rank "
      "table");
  if (launcher.spread == Spread::kUnknown && IsLoopback(address)) return Ok();
  place->address = address;
  return Ok();
}

}  // namespace

Status FindJobPlace(const std::shared_ptr<const RankTable>& table, int rank, JobPlace* place) {
  JobPlace found;
  Placement job;
  if (table != nullptr && table->servers.size() == 1) {
    found.table_digest = table->digest;
  } else {
    COLLOPS_RETURN_IF_ERROR(FindJobTable(table, rank, &job));
    const Launcher launcher = DetectLauncher();
    found.is_first = job.rank == 0;
    if (job.table != nullptr) {
      found.table_digest = job.table->digest;
      if (job.table->servers.size() > 1) found.address = AddressOf(*job.table);
    } else {
      // Ranks of a group that is a part of the job have other numbers there.
      if (launcher.rank >= 0) found.is_first = launcher.rank == 0;
      COLLOPS_RETURN_IF_ERROR(FindByLauncher(launcher, &found));
    }
  }
  *place = std::move(found);
  return Ok();
}

Status ReadJobPlace(const std::string& meet_at, int rank, JobPlace* place) {
  *place = {};
  if (meet_at.empty()) return Ok();
  constexpr int kMostPort = 65535;
  const size_t colon = meet_at.rfind(':');
  std::string host = meet_at.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  HostAddress address;
  int port = 0;
  const char* const end = meet_at.data() + meet_at.size();
  const char* const digits = end - (host.empty() ? 0 : meet_at.size() - colon - 1);
  const std::from_chars_result read = std::from_chars(digits, end, port);
  const bool sound = read.ec == std::errc() && read.ptr == end && port > 0 && port <= kMostPort;
  COLLOPS_CHECK_ARG(
      sound && ParseAddress(host.substr(0, host.find('%')), &address), ERROR_INVALID_PARAM,
      "meet_at must be an address of rank 0's host and a port, as \"10.0.0.1:29577\", got \"",
      meet_at, "\"");
  place->address = host;
  place->port = port;
  place->is_first = rank == 0;
  return Ok();
}

Status FindJobDigest(std::string* digest) {
  digest->clear();
  const std::string path = GetVariable("RANK_TABLE_FILE");
  if (path.empty()) return Ok();
  RankTable table;
  COLLOPS_RETURN_IF_ERROR(ReadRankTable(path, &table));
  if (table.completed) *digest = table.digest;
  return Ok();
}

Status CheckAcrossHosts(const JobIdentity& job) {
  COLLOPS_CHECK_ARG(!job.of_one_host, ERROR_INVALID_PARAM, "the ranks are on several hosts, and ",
                    job.source,
                    " names the job on each host differently: set COLLOPS_JOB_ID to a text that "
                    "is the same in all ranks of the job and differs from other jobs");
  return Ok();
}

}  // namespace collops

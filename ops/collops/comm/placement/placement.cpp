#include "collops/comm/placement/placement.h"

#include <map>
#include <utility>
#include <vector>

#include "collops/comm/placement/host_address.h"
#include "collops/comm/placement/local_host.h"
#include "collops/comm/placement/rank_table.h"
#include "collops/core/env.h"

namespace collops {
namespace {

// "0, 1, 3"
std::string List(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += Concat(text.empty() ? "" : ", ", rank);
  return text;
}

// The rank of this process among those of its host: by DEVICE_ID, by the pod's name, or because
// there is no other.
Status FindRank(const RankTable& table, int* rank) {
  const LocalHost host = ThisHost();
  int server = 0;
  COLLOPS_RETURN_IF_ERROR(FindServer(table, host, &server));
  const std::string device = GetVariable("DEVICE_ID");
  std::vector<int> here;
  std::vector<int> chosen;
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const RankTable::Rank& candidate = table.ranks[r];
    if (candidate.server != server) continue;
    here.push_back(static_cast<int>(r));
    const bool is_pod = !candidate.pod_name.empty() && candidate.pod_name == host.name;
    if (device.empty() ? is_pod : std::to_string(candidate.device_id) == device) {
      chosen.push_back(static_cast<int>(r));
    }
  }
  if (chosen.empty() && device.empty()) chosen = here;
  const std::string& id = table.servers[static_cast<size_t>(server)].id;
  COLLOPS_CHECK_ARG(!chosen.empty(), ERROR_INVALID_PARAM, table.file, ": DEVICE_ID is \"", device,
                    "\", but no rank of this host, server \"", id, "\", has that device");
  COLLOPS_CHECK_ARG(chosen.size() == 1, ERROR_INVALID_PARAM, table.file, ": ranks ", List(chosen),
                    " are on this host, server \"", id,
                    "\": set RANK_ID, or DEVICE_ID, to say which one this process is");
  *rank = chosen[0];
  return Ok();
}

Status CheckRankSize(const RankTable& table, int rank_size) {
  const size_t listed = table.ranks.size();
  COLLOPS_CHECK_ARG(static_cast<size_t>(rank_size) == listed, ERROR_INVALID_PARAM, "rankSize is ",
                    rank_size, ", but ", table.file, " lists ", listed, " ranks: pass ", listed);
  return Ok();
}

// Reads the table that the caller or the environment names, if it says something of this group.
Status FindTable(const PlacementWanted& wanted, int rank_size,
                 std::shared_ptr<const RankTable>* table) {
  const bool from_caller = !wanted.table_file.empty();
  if (!from_caller && wanted.threads) return Ok();
  const std::string path = from_caller ? wanted.table_file : GetVariable("RANK_TABLE_FILE");
  if (path.empty()) return Ok();
  RankTable read;
  COLLOPS_RETURN_IF_ERROR(ReadRankTable(path, &read));
  const bool smaller =
      read.completed && rank_size != -1 && static_cast<size_t>(rank_size) < read.ranks.size();
  if (from_caller || !smaller) *table = std::make_shared<const RankTable>(std::move(read));
  return Ok();
}

// device_ip may be left out on one server alone, and on all devices at once.
Status CheckDeviceAddresses(const RankTable& table) {
  std::map<HostAddress, size_t> seen;
  size_t given = 0;
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const std::string& text = table.ranks[r].device_ip;
    if (text.empty()) continue;
    ++given;
    HostAddress address;
    COLLOPS_CHECK_ARG(ParseAddress(text, &address), ERROR_INVALID_PARAM, table.file,
                      ": device_ip of rank ", r, " must be an IPv4 or IPv6 address, got \"", text,
                      "\"");
    const auto [first, added] = seen.emplace(address, r);
    COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table.file, ": device_ip \"", text,
                      "\" is given to ranks ", first->second, " and ", r);
    COLLOPS_CHECK_ARG(
        address.size() == seen.begin()->first.size(), ERROR_INVALID_PARAM, table.file,
        ": device_ip of rank ", r, ", \"", text,
        "\", is of another family than the others: HCCL needs IPv4 only or IPv6 only");
  }
  const bool needed = table.servers.size() > 1 || given > 0;
  for (size_t r = 0; needed && r < table.ranks.size(); ++r) {
    COLLOPS_CHECK_ARG(
        !table.ranks[r].device_ip.empty(), ERROR_INVALID_PARAM, table.file, ": rank ", r,
        " has no device_ip, which HCCL needs ",
        table.servers.size() > 1 ? "on several servers" : "on all devices or on none");
  }
  return Ok();
}

Status CheckDevices(const RankTable& table) {
  std::map<std::pair<int, int>, size_t> devices;
  std::vector<size_t> per_server(table.servers.size());
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const RankTable::Rank& rank = table.ranks[r];
    const std::string& server = table.servers[static_cast<size_t>(rank.server)].id;
    const auto [first, added] = devices.emplace(std::pair(rank.server, rank.device_id), r);
    COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table.file, ": device_id \"", rank.device_id,
                      "\" of server \"", server, "\" is given to ranks ", first->second, " and ",
                      r);
    const bool follows = r == 0 || table.ranks[r - 1].server == rank.server ||
                         per_server[static_cast<size_t>(rank.server)] == 0;
    COLLOPS_CHECK_ARG(follows, ERROR_INVALID_PARAM, table.file, ": rank ", r, " of server \"",
                      server, "\" does not follow the server's other ranks, as HCCL requires");
    ++per_server[static_cast<size_t>(rank.server)];
  }
  for (size_t s = 1; s < per_server.size(); ++s) {
    COLLOPS_CHECK_ARG(per_server[s] == per_server[0], ERROR_INVALID_PARAM, table.file,
                      ": server \"", table.servers[s].id, "\" has ", per_server[s],
                      " devices and \"", table.servers[0].id, "\" ", per_server[0],
                      ": HCCL requires equally many on each");
  }
  return Ok();
}

}  // namespace

Status CheckTable(const RankTable& table, int rank, int rank_size) {
  COLLOPS_RETURN_IF_ERROR(CheckRankSize(table, rank_size));
  COLLOPS_CHECK_ARG(rank >= 0 && rank < rank_size, ERROR_INVALID_PARAM, "rank is ", rank, ", but ",
                    table.file, " lists ranks 0 to ", rank_size - 1);
  int server = 0;
  // A host that cannot tell which server it is may still know its ranks.
  const LocalHost host = ThisHost();
  if (host.server_id.empty() && !FindServer(table, host, &server).ok()) return Ok();
  COLLOPS_RETURN_IF_ERROR(FindServer(table, host, &server));
  const int placed = table.ranks[static_cast<size_t>(rank)].server;
  COLLOPS_CHECK_ARG(placed == server, ERROR_INVALID_PARAM, "rank ", rank, " is this process, but ",
                    table.file, " places it on server \"",
                    table.servers[static_cast<size_t>(placed)].id, "\", and this host is \"",
                    table.servers[static_cast<size_t>(server)].id, "\"");
  return Ok();
}

Status CheckOneHost(const std::string& backend, const RankTable& table) {
  const size_t servers = table.servers.size();
  COLLOPS_CHECK_ARG(servers == 1, ERROR_UNSUPPORTED, "backend ", backend, " runs on one host, but ",
                    table.file, " places the ranks on ", servers);
  return Ok();
}

Status CheckDeviceRules(const RankTable& table) {
  COLLOPS_RETURN_IF_ERROR(CheckDevices(table));
  return CheckDeviceAddresses(table);
}

Status FindPlacement(const PlacementWanted& wanted, Placement* placement) {
  const Launcher launcher = DetectLauncher();
  Placement found;
  found.rank = wanted.rank;
  found.rank_size = wanted.rank_size;
  // The caller's table goes before the launcher, which goes before RANK_TABLE_FILE.
  if (found.rank_size == -1 && wanted.table_file.empty()) found.rank_size = launcher.rank_size;
  COLLOPS_RETURN_IF_ERROR(FindTable(wanted, found.rank_size, &found.table));
  const bool complete = found.table != nullptr && found.table->completed;
  if (found.rank_size == -1) {
    found.rank_size = complete ? static_cast<int>(found.table->ranks.size()) : launcher.rank_size;
  }
  if (complete) COLLOPS_RETURN_IF_ERROR(CheckRankSize(*found.table, found.rank_size));
  if (found.rank == -1) {
    found.rank = launcher.rank;
    found.source = launcher.name;
  }
  if (found.rank == -1 && complete) {
    COLLOPS_RETURN_IF_ERROR(FindRank(*found.table, &found.rank));
    found.source = found.table->file;
  }
  if (complete) COLLOPS_RETURN_IF_ERROR(CheckTable(*found.table, found.rank, found.rank_size));
  *placement = std::move(found);
  return Ok();
}

}  // namespace collops

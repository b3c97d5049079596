#include "collops/comm/placement/host_address.h"
#include "collops/comm/placement/rank_table/formats.h"

namespace collops::rank_table {
namespace {

Status CheckPort(const TableValue& owner, const char* key) {
  int64_t port = 0;
  return owner.Has(key) ? owner.Number(key, 1, 65535, &port) : Ok();
}

Status ReadDevice(const TableValue& device, RankTable::Rank rank, bool super_pods,
                  ListedRanks* ranks) {
  int64_t device_id = 0;
  int64_t number = 0;
  COLLOPS_RETURN_IF_ERROR(device.Number("device_id", 0, kMaxDeviceId, &device_id));
  COLLOPS_RETURN_IF_ERROR(device.OptionalText("device_ip", &rank.device_ip));
  COLLOPS_RETURN_IF_ERROR(device.Number("rank_id", 0, kMaxRank, &number));
  for (const char* port : {"device_port", "backup_device_port", "device_vnic_port"}) {
    COLLOPS_RETURN_IF_ERROR(CheckPort(device, port));
  }
  if (super_pods) {
    int64_t super_device_id = 0;
    COLLOPS_RETURN_IF_ERROR(device.Number("super_device_id", 0, INT64_MAX, &super_device_id));
    rank.super_device_id = std::to_string(super_device_id);
  }
  rank.device_id = static_cast<int>(device_id);
  return ranks->Add(number, std::move(rank), device);
}

Status ReadServer(const TableValue& entry, RankTable* table, Unique* ids, ListedRanks* ranks) {
  RankTable::Server server;
  COLLOPS_RETURN_IF_ERROR(entry.Text("server_id", &server.id));
  COLLOPS_RETURN_IF_ERROR(ids->Add(server.id, entry, "server_id"));
  COLLOPS_RETURN_IF_ERROR(entry.OptionalText("host_ip", &server.host_ip));
  HostAddress address;
  if (!server.host_ip.empty() && !ParseAddress(server.host_ip, &address)) {
    return entry.Wrong(".host_ip must be an IPv4 or IPv6 address, got \"", server.host_ip, "\"");
  }
  COLLOPS_RETURN_IF_ERROR(CheckPort(entry, "host_port"));
  RankTable::Rank rank;
  rank.server = static_cast<int>(table->servers.size());
  table->servers.push_back(std::move(server));
  std::vector<TableValue> devices;
  COLLOPS_RETURN_IF_ERROR(entry.List("device", &devices));
  for (const TableValue& device : devices) {
    COLLOPS_RETURN_IF_ERROR(ReadDevice(device, rank, table->version == "1.2", ranks));
  }
  return Ok();
}

Status PlaceInPod(const TableValue& entry, const std::string& pod, RankTable* table) {
  std::string id;
  COLLOPS_RETURN_IF_ERROR(entry.Text("server_id", &id));
  for (RankTable::Server& server : table->servers) {
    if (server.id != id) continue;
    if (!server.super_pod_id.empty()) {
      return entry.Wrong(".server_id: \"", id, "\" is in super pod \"", server.super_pod_id,
                         "\" already");
    }
    server.super_pod_id = pod;
    return Ok();
  }
  return entry.Wrong(".server_id: \"", id, "\" is not in server_list");
}

// Every server in exactly one super pod, and every super_device_id once in its pod.
Status ReadSuperPods(const TableValue& root, RankTable* table) {
  std::vector<TableValue> pods;
  COLLOPS_RETURN_IF_ERROR(root.List("super_pod_list", &pods));
  Unique ids;
  for (const TableValue& pod : pods) {
    std::string id;
    COLLOPS_RETURN_IF_ERROR(pod.Text("super_pod_id", &id));
    COLLOPS_RETURN_IF_ERROR(ids.Add(id, pod, "super_pod_id"));
    std::vector<TableValue> servers;
    COLLOPS_RETURN_IF_ERROR(pod.List("server_list", &servers));
    for (const TableValue& server : servers) COLLOPS_RETURN_IF_ERROR(PlaceInPod(server, id, table));
  }
  for (const RankTable::Server& server : table->servers) {
    COLLOPS_CHECK_ARG(!server.super_pod_id.empty(), ERROR_INVALID_PARAM, table->file, ": server \"",
                      server.id, "\" of server_list is in no entry of super_pod_list");
  }
  std::map<std::pair<std::string, std::string>, size_t> devices;
  for (size_t r = 0; r < table->ranks.size(); ++r) {
    const RankTable::Rank& rank = table->ranks[r];
    const std::string& pod = table->servers[static_cast<size_t>(rank.server)].super_pod_id;
    const auto [first, added] = devices.emplace(std::pair(pod, rank.super_device_id), r);
    COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table->file, ": super_device_id \"",
                      rank.super_device_id, "\" is given to ranks ", first->second, " and ", r,
                      " of super pod \"", pod, "\"");
  }
  return Ok();
}

}  // namespace

Status ReadServerList(const TableValue& root, RankTable* table) {
  std::vector<TableValue> servers;
  COLLOPS_RETURN_IF_ERROR(root.List("server_list", &servers));
  COLLOPS_RETURN_IF_ERROR(root.Count("server_count", servers.size(), "server_list"));
  Unique ids;
  ListedRanks ranks;
  for (const TableValue& server : servers) {
    COLLOPS_RETURN_IF_ERROR(ReadServer(server, table, &ids, &ranks));
  }
  COLLOPS_RETURN_IF_ERROR(ranks.Take(table->file, &table->ranks));
  return table->version == "1.2" ? ReadSuperPods(root, table) : Ok();
}

}  // namespace collops::rank_table

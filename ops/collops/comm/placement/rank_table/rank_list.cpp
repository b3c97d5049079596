#include <algorithm>

#include "collops/comm/placement/rank_table/formats.h"

namespace collops::rank_table {
namespace {

constexpr bool kDigits = false;  // numbers of version 2.0 are JSON numbers

Status CheckOneOf(const TableValue& owner, const char* key, const std::vector<std::string>& allowed,
                  std::string* text) {
  COLLOPS_RETURN_IF_ERROR(owner.Text(key, text));
  if (std::find(allowed.begin(), allowed.end(), *text) != allowed.end()) return Ok();
  std::string list;
  for (const std::string& name : allowed) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return owner.Wrong(".", key, " must be one of ", list, ", got \"", *text, "\"");
}

Status CheckAddress(const TableValue& entry, RankTable::Rank* rank) {
  std::string type;
  std::string address;
  COLLOPS_RETURN_IF_ERROR(entry.Text("addr_type", &type));
  COLLOPS_RETURN_IF_ERROR(entry.Text("addr", &address));
  if (rank->device_ip.empty() && (type == "IPV4" || type == "IPV6")) rank->device_ip = address;
  return Ok();
}

// Layer 0 is the innermost network: the ranks of one server share its instance.
Status ReadLevel(const TableValue& level, std::string* server, RankTable::Rank* rank) {
  int64_t layer = 0;
  std::string instance;
  std::string type;
  COLLOPS_RETURN_IF_ERROR(level.Number("net_layer", 0, 7, &layer, kDigits));
  COLLOPS_RETURN_IF_ERROR(level.Text("net_instance_id", &instance));
  COLLOPS_RETURN_IF_ERROR(CheckOneOf(level, "net_type", {"TOPO_FILE_DESC", "CLOS"}, &type));
  if (layer == 0) *server = instance;
  std::vector<TableValue> addresses;
  COLLOPS_RETURN_IF_ERROR(level.List("rank_addr_list", &addresses));
  for (const TableValue& address : addresses) COLLOPS_RETURN_IF_ERROR(CheckAddress(address, rank));
  return Ok();
}

int ServerCalled(const std::string& id, RankTable* table) {
  const auto found = std::find_if(table->servers.begin(), table->servers.end(),
                                  [&id](const RankTable::Server& s) { return s.id == id; });
  const auto index = found - table->servers.begin();
  if (found == table->servers.end()) table->servers.push_back({id, "", ""});
  return static_cast<int>(index);
}

Status ReadRank(const TableValue& entry, RankTable* table, ListedRanks* ranks) {
  int64_t number = 0;
  int64_t local_id = 0;
  int64_t device_id = 0;
  COLLOPS_RETURN_IF_ERROR(entry.Number("rank_id", 0, kMaxRank, &number, kDigits));
  COLLOPS_RETURN_IF_ERROR(entry.Number("local_id", 0, kMaxDeviceId, &local_id, kDigits));
  COLLOPS_RETURN_IF_ERROR(entry.Number("device_id", 0, kMaxDeviceId, &device_id, kDigits));
  std::vector<TableValue> levels;
  COLLOPS_RETURN_IF_ERROR(entry.List("level_list", &levels));
  RankTable::Rank rank;
  rank.device_id = static_cast<int>(device_id);
  std::string server;
  for (const TableValue& level : levels) COLLOPS_RETURN_IF_ERROR(ReadLevel(level, &server, &rank));
  if (server.empty()) return entry.Wrong(".level_list has no entry with net_layer 0");
  rank.server = ServerCalled(server, table);
  return ranks->Add(number, std::move(rank), entry);
}

}  // namespace

Status ReadRankList(const TableValue& root, RankTable* table) {
  std::vector<TableValue> entries;
  COLLOPS_RETURN_IF_ERROR(root.List("rank_list", &entries));
  COLLOPS_RETURN_IF_ERROR(root.Count("rank_count", entries.size(), "rank_list", kDigits));
  ListedRanks ranks;
  for (const TableValue& entry : entries) COLLOPS_RETURN_IF_ERROR(ReadRank(entry, table, &ranks));
  return ranks.Take(table->file, &table->ranks);
}

}  // namespace collops::rank_table

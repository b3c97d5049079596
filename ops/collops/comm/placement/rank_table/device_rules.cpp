#include "collops/comm/placement/rank_table/device_rules.h"

#include <map>
#include <utility>

#include "collops/comm/placement/host_address.h"

namespace collops {
namespace {

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

Status CheckDeviceRules(const RankTable& table) {
  COLLOPS_RETURN_IF_ERROR(CheckDevices(table));
  return CheckDeviceAddresses(table);
}

}  // namespace collops

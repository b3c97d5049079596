#include "collops/comm/placement/placement.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "collops/comm/placement/rank_table.h"
#include "collops/core/env.h"

namespace collops {
namespace {

std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(address);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  }
  return text;
}

std::vector<std::string> InterfaceAddresses() {
  std::vector<std::string> addresses;
  std::vector<std::string> loopback;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const std::string text = TextOf(one->ifa_addr);
    if (text.empty()) continue;
    ((one->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(text);
  }
  freeifaddrs(all);
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

std::string Short(const std::string& name) {
  return name.substr(0, name.find('.'));
}

// "a, b"
template <typename Item>
std::string List(const std::vector<Item>& items) {
  std::string list;
  for (const Item& item : items) list += Concat(list.empty() ? "" : ", ", item);
  return list.empty() ? "none" : list;
}

using Matches = std::function<bool(const RankTable::Server&)>;

std::vector<int> ServersThat(const RankTable& table, const Matches& match) {
  std::vector<int> found;
  for (size_t s = 0; s < table.servers.size(); ++s) {
    if (match(table.servers[s])) found.push_back(static_cast<int>(s));
  }
  return found;
}

// "node-a (10.0.0.1), node-b"
std::string Servers(const RankTable& table, const std::vector<int>& which) {
  std::vector<std::string> texts;
  for (const int s : which) {
    const RankTable::Server& server = table.servers[static_cast<size_t>(s)];
    const std::string& address = server.address();
    texts.push_back(address == server.id ? address : Concat(server.id, " (", address, ")"));
  }
  return List(texts);
}

std::string Describe(const LocalHost& host) {
  return Concat("this host has the name ", host.name, " and the addresses ", List(host.addresses));
}

}  // namespace

LocalHost ThisHost() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return {GetVariable("COLLOPS_SERVER_ID"), InterfaceAddresses(), name, RankNumber("RANK_ID")};
}

Status FindServer(const RankTable& table, const LocalHost& host, int* server) {
  const std::vector<int> all = ServersThat(table, [](const auto&) { return true; });
  const std::string& given = host.server_id;
  if (!given.empty()) {
    const std::vector<int> named = ServersThat(table, [&](const auto& s) { return s.id == given; });
    COLLOPS_CHECK_ARG(named.size() == 1, ERROR_INVALID_PARAM, table.file,
                      ": COLLOPS_SERVER_ID is \"", given, "\", but the table's servers are ",
                      Servers(table, all));
    *server = named[0];
    return Ok();
  }
  const auto is_local = [&host](const std::string& text) {
    HostAddress wanted;
    HostAddress own;
    return ParseAddress(text, &wanted) &&
           std::any_of(host.addresses.begin(), host.addresses.end(), [&](const auto& address) {
             return ParseAddress(address, &own) && own == wanted;
           });
  };
  const auto is_address = [](const std::string& text) {
    HostAddress address;
    return ParseAddress(text, &address);
  };
  const Matches rules[] = {
      [&](const auto& s) { return is_local(s.container_ip); },
      [&](const auto& s) { return is_local(s.host_ip); },
      [&](const auto& s) { return is_local(s.id); },
      [&](const auto& s) { return s.id == host.name; },
      [&](const auto& s) { return !is_address(s.id) && Short(s.id) == Short(host.name); },
  };
  const auto own = static_cast<size_t>(host.rank);
  const int of_rank = host.rank >= 0 && own < table.ranks.size() ? table.ranks[own].server : -1;
  for (const Matches& rule : rules) {
    std::vector<int> found = ServersThat(table, rule);
    if (found.empty()) continue;
    // Pods that have the network of their node share its addresses.
    if (std::find(found.begin(), found.end(), of_rank) != found.end()) found = {of_rank};
    COLLOPS_CHECK_ARG(found.size() == 1, ERROR_INVALID_PARAM, table.file,
                      ": more than one server is this ", "host: ", Servers(table, found), "; ",
                      Describe(host), ": set COLLOPS_SERVER_ID to this host's server_id");
    *server = found[0];
    return Ok();
  }
  *server = of_rank;
  if (of_rank >= 0) return Ok();
  return Error(ERROR_INVALID_PARAM, table.file, ": no server is this host: the servers are ",
               Servers(table, all), "; ", Describe(host),
               ": set COLLOPS_SERVER_ID to this host's server_id");
}

namespace {

// The rank of this process: RANK_ID; or among those of its host: by DEVICE_ID, by the pod's name,
// or because there is no other.
Status FindRank(const RankTable& table, int* rank) {
  const LocalHost host = ThisHost();
  *rank = host.rank;
  if (host.rank >= 0) return Ok();
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

Status CheckListedSize(const RankTable& table, int rank_size, const Voice& voice) {
  const size_t listed = table.ranks.size();
  COLLOPS_CHECK_ARG(static_cast<size_t>(rank_size) == listed, ERROR_INVALID_PARAM, voice.begin,
                    voice.rank_size, " is ", rank_size, ", but ", table.file, " lists ", listed,
                    " ranks: pass ", listed);
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

// What HCCL asks of a table depends on the chip.
struct Chip {
  const char* soc;  // begins its name
  const char* name;
  bool takes_2_0;  // and then no other version
  int most_device_id;
  bool equal_servers;    // each with as many devices
  bool needs_device_ip;  // between servers, also where they have a host_ip
};

// In this order: the first whose name fits.
constexpr Chip kChips[] = {
    {"Ascend950", "Atlas 350 (950)", true, 64, false, false},
    {"Ascend910_95", "Atlas 350 (950)", true, 64, false, false},
    {"Ascend910_93", "Atlas A3", false, 15, false, true},
    {"Ascend910B", "Atlas A2", false, 15, false, true},
    {"Ascend310P", "Atlas 300I Duo (310P)", false, 31, true, false},
    {"Ascend910", "Ascend910 of the first generation", false, 7, true, false},
};

Chip ChipOf(std::string soc, const std::string& version) {
  if (soc.empty()) soc = version == "2.0" ? "Ascend950" : version == "1.2" ? "Ascend910_93" : "";
  const bool is_first = soc == "Ascend910B";  // the first generation, and not Ascend910B1 to B4
  for (const Chip& chip : kChips) {
    const std::string begin = is_first ? "Ascend910" : chip.soc;
    if (begin == chip.soc && soc.compare(0, begin.size(), begin) == 0) return chip;
  }
  return kChips[3];
}

std::vector<std::string> AddressesIn(const std::string& list) {
  std::vector<std::string> addresses;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    addresses.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return addresses;
}

Status CheckDeviceAddresses(const RankTable& table) {
  std::map<HostAddress, size_t> seen;
  const bool across = table.servers.size() > 1;
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const std::vector<std::string> addresses = AddressesIn(table.ranks[r].device_ip);
    const size_t first_count = AddressesIn(table.ranks[0].device_ip).size();
    COLLOPS_CHECK_ARG(std::max<size_t>(addresses.size(), 1) == std::max<size_t>(first_count, 1),
                      ERROR_INVALID_PARAM, table.file, ": device_ip of rank ", r, " has ",
                      addresses.size(), " addresses and that of rank 0 ", first_count,
                      ": HCCL requires equally many");
    for (const std::string& text : addresses) {
      HostAddress address;
      COLLOPS_CHECK_ARG(ParseAddress(text, &address), ERROR_INVALID_PARAM, table.file,
                        ": device_ip of rank ", r, " must be an IPv4 or IPv6 address, got \"", text,
                        "\"");
      const auto [first, added] = seen.emplace(address, r);
      COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table.file, ": device_ip \"", text,
                        "\" is given to ranks ", first->second, " and ", r);
      COLLOPS_CHECK_ARG(
          !across || address.size() == seen.begin()->first.size(), ERROR_INVALID_PARAM, table.file,
          ": device_ip of rank ", r, ", \"", text,
          "\", is of another family than the others: HCCL needs IPv4 only or IPv6 only");
    }
  }
  return Ok();
}

// Ranks that are linked inside one server or one super pod need none.
Status CheckNeededAddresses(const RankTable& table, const Chip& chip) {
  const std::string& pod = table.servers[0].super_pod_id;
  const bool one_pod =
      !pod.empty() && std::all_of(table.servers.begin(), table.servers.end(),
                                  [&](const auto& s) { return s.super_pod_id == pod; });
  if (table.servers.size() == 1 || one_pod) return Ok();
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const RankTable::Server& server = table.servers[static_cast<size_t>(table.ranks[r].server)];
    const bool over_host = !chip.needs_device_ip && !server.host_ip.empty();
    COLLOPS_CHECK_ARG(!table.ranks[r].device_ip.empty() || over_host, ERROR_INVALID_PARAM,
                      table.file, ": rank ", r, " has no device_ip, which HCCL needs on several ",
                      table.version == "1.2" ? "super pods" : "servers");
  }
  return Ok();
}

Status CheckDevices(const RankTable& table, const Chip& chip) {
  std::map<std::pair<int, int>, size_t> devices;
  std::vector<size_t> per_server(table.servers.size());
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const RankTable::Rank& rank = table.ranks[r];
    const std::string& server = table.servers[static_cast<size_t>(rank.server)].id;
    COLLOPS_CHECK_ARG(rank.device_id <= chip.most_device_id, ERROR_INVALID_PARAM, table.file,
                      ": device_id of rank ", r, " must be at most ", chip.most_device_id, " on ",
                      chip.name, ", got ", rank.device_id);
    const auto [first, added] = devices.emplace(std::pair(rank.server, rank.device_id), r);
    COLLOPS_CHECK_ARG(added, ERROR_INVALID_PARAM, table.file, ": device_id \"", rank.device_id,
                      "\" of server \"", server, "\" is given to ranks ", first->second, " and ",
                      r);
    const bool follows = chip.takes_2_0 || r == 0 || table.ranks[r - 1].server == rank.server ||
                         per_server[static_cast<size_t>(rank.server)] == 0;
    COLLOPS_CHECK_ARG(follows, ERROR_INVALID_PARAM, table.file, ": rank ", r, " of server \"",
                      server, "\" does not follow the server's other ranks, as HCCL requires");
    ++per_server[static_cast<size_t>(rank.server)];
  }
  for (size_t s = 1; chip.equal_servers && s < per_server.size(); ++s) {
    COLLOPS_CHECK_ARG(per_server[s] == per_server[0], ERROR_INVALID_PARAM, table.file,
                      ": server \"", table.servers[s].id, "\" has ", per_server[s],
                      " devices and \"", table.servers[0].id, "\" ", per_server[0],
                      ": HCCL requires equally many on each, on ", chip.name);
  }
  return Ok();
}

// With a list of super pods HCCL takes every device for one of them.
Status CheckSuperDevices(const RankTable& table) {
  for (size_t r = 0; r < table.ranks.size(); ++r) {
    const RankTable::Rank& rank = table.ranks[r];
    const std::string& pod = table.servers[static_cast<size_t>(rank.server)].super_pod_id;
    COLLOPS_CHECK_ARG(pod.empty() || !rank.super_device_id.empty(), ERROR_INVALID_PARAM, table.file,
                      ": rank ", r, " has no super_device_id, which HCCL needs beside a ",
                      "super_pod_list");
  }
  return Ok();
}

// HCCL looks at the file behind a link, and for the first ".json" in the path.
Status CheckTableName(const RankTable& table) {
  const std::string end = ".json";
  char real[PATH_MAX] = {};
  const std::string path = realpath(table.path.c_str(), real) == nullptr ? table.path : real;
  const bool fits = path.size() > end.size() && path.find(end) == path.size() - end.size();
  COLLOPS_CHECK_ARG(fits, ERROR_INVALID_PARAM, table.file,
                    ": HCCL reads only files whose path ends in .json and has no other .json, got ",
                    path);
  return Ok();
}

}  // namespace

Status CheckTable(const RankTable& table, int rank, int rank_size, const Voice& voice) {
  COLLOPS_RETURN_IF_ERROR(CheckListedSize(table, rank_size, voice));
  COLLOPS_CHECK_ARG(rank >= 0 && rank < rank_size, ERROR_INVALID_PARAM, "rank is ", rank, ", but ",
                    table.file, " lists ranks 0 to ", rank_size - 1);
  int server = 0;
  // A host that cannot tell which server it is may still know its ranks.
  LocalHost host = ThisHost();
  host.rank = rank;
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

Status CheckNoMeetAt(const std::string& backend, const std::string& meet_at) {
  COLLOPS_CHECK_ARG(meet_at.empty(), ERROR_UNSUPPORTED, "backend ", backend,
                    " runs on one host, but meet_at says that the ranks are on several");
  return Ok();
}

Status CheckDeviceRules(const RankTable& table, const std::string& soc) {
  COLLOPS_RETURN_IF_ERROR(CheckTableName(table));
  const Chip chip = ChipOf(soc, table.version);
  COLLOPS_CHECK_ARG(chip.takes_2_0 == (table.version == "2.0"), ERROR_INVALID_PARAM, table.file,
                    ": HCCL takes version \"2.0\"", chip.takes_2_0 ? " and no other" : " not",
                    " on ", chip.name, ", got \"", table.version, "\"");
  COLLOPS_RETURN_IF_ERROR(CheckDevices(table, chip));
  if (chip.takes_2_0) return Ok();  // its addresses are of another kind
  COLLOPS_RETURN_IF_ERROR(CheckDeviceAddresses(table));
  COLLOPS_RETURN_IF_ERROR(CheckNeededAddresses(table, chip));
  return CheckSuperDevices(table);
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
  if (complete) {
    COLLOPS_RETURN_IF_ERROR(CheckListedSize(*found.table, found.rank_size, wanted.voice));
  }
  if (found.rank == -1) {
    found.rank = launcher.rank;
    found.source = launcher.name;
  }
  if (found.rank == -1 && complete) {
    COLLOPS_RETURN_IF_ERROR(FindRank(*found.table, &found.rank));
    found.source = found.table->file;
  }
  if (complete) {
    COLLOPS_RETURN_IF_ERROR(CheckTable(*found.table, found.rank, found.rank_size, wanted.voice));
  }
  *placement = std::move(found);
  return Ok();
}

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
  return table.servers[static_cast<size_t>(table.ranks.front().server)].address();
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

Status FindPlacesToJoin(std::vector<std::string>* addresses) {
  addresses->clear();
  std::shared_ptr<const RankTable> table;
  COLLOPS_RETURN_IF_ERROR(ReadJobTable(&table));
  if (table == nullptr) {
    JobPlace place;
    COLLOPS_RETURN_IF_ERROR(FindByLauncher(DetectLauncher(), &place));
    if (!place.address.empty()) addresses->push_back(place.address);
    return Ok();
  }
  if (table->servers.size() < 2) return Ok();
  const std::string given = GetVariable("MASTER_ADDR");
  if (!given.empty() && !IsLoopback(given)) addresses->push_back(given);
  for (const RankTable::Server& server : table->servers) {
    const bool is_there = std::count(addresses->begin(), addresses->end(), server.address()) > 0;
    if (!is_there) addresses->push_back(server.address());
  }
  return Ok();
}

Status ReadJobTable(std::shared_ptr<const RankTable>* table) {
  table->reset();
  const std::string path = GetVariable("RANK_TABLE_FILE");
  if (path.empty()) return Ok();
  RankTable read;
  COLLOPS_RETURN_IF_ERROR(ReadRankTable(path, &read));
  *table = std::make_shared<const RankTable>(std::move(read));
  return Ok();
}

Status FindJobDigest(std::string* digest) {
  std::shared_ptr<const RankTable> table;
  COLLOPS_RETURN_IF_ERROR(ReadJobTable(&table));
  *digest = table == nullptr || !table->completed ? "" : table->digest;
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

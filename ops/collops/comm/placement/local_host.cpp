#include "collops/comm/placement/local_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "collops/comm/placement/host_address.h"
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

std::string List(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + text;
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
    texts.push_back(server.host_ip.empty() ? server.id : server.id + " (" + server.host_ip + ")");
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
  return {GetVariable("COLLOPS_SERVER_ID"), InterfaceAddresses(), name};
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
      [&](const auto& s) { return is_local(s.host_ip); },
      [&](const auto& s) { return is_local(s.id); },
      [&](const auto& s) { return s.id == host.name; },
      [&](const auto& s) { return !is_address(s.id) && Short(s.id) == Short(host.name); },
  };
  for (const Matches& rule : rules) {
    const std::vector<int> found = ServersThat(table, rule);
    if (found.empty()) continue;
    COLLOPS_CHECK_ARG(found.size() == 1, ERROR_INVALID_PARAM, table.file,
                      ": more than one server is this ", "host: ", Servers(table, found), "; ",
                      Describe(host), ": set COLLOPS_SERVER_ID to this host's server_id");
    *server = found[0];
    return Ok();
  }
  return Error(ERROR_INVALID_PARAM, table.file, ": no server is this host: the servers are ",
               Servers(table, all), "; ", Describe(host),
               ": set COLLOPS_SERVER_ID to this host's server_id");
}

}  // namespace collops

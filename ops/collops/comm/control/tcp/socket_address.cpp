#include "collops/comm/control/tcp/socket_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "collops/core/env.h"
#include "collops/core/status.h"

namespace collops::control::tcp {

std::string HostIdentity() {
  const std::string given = GetVariable("COLLOPS_SERVER_ID");
  if (!given.empty()) return "server " + given;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char name[256] = "";
  if (!std::getline(file, boot) && gethostname(name, sizeof(name) - 1) == 0) boot = name;
  struct stat net{};
  return Concat("boot ", boot, " net ", stat("/proc/self/ns/net", &net) == 0 ? net.st_ino : 0);
}

namespace {

in_port_t* PortOf(sockaddr_storage* storage) {
  if (storage->ss_family == AF_INET6) return &reinterpret_cast<sockaddr_in6*>(storage)->sin6_port;
  return &reinterpret_cast<sockaddr_in*>(storage)->sin_port;
}

int Find(const std::string& host, int flags, addrinfo** found) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  return getaddrinfo(host.c_str(), nullptr, &wanted, found);
}

SocketAddress From(const addrinfo& found, int port) {
  SocketAddress address;
  std::memcpy(&address.storage, found.ai_addr, found.ai_addrlen);
  address.length = found.ai_addrlen;
  address.set_port(port);
  return address;
}

// Many hosts have their own name as 127.0.1.1 in /etc/hosts, where no other host reaches them.
bool IsLoopback(const addrinfo& found) {
  if (found.ai_family == AF_INET) {
    constexpr uint32_t kLoopbackNet = 127;
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(*found.ai_addr);
    return ntohl(v4.sin_addr.s_addr) >> 24 == kLoopbackNet;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*found.ai_addr);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

}  // namespace

int SocketAddress::port() const {
  sockaddr_storage copy = storage;
  return ntohs(*PortOf(&copy));
}

void SocketAddress::set_port(int port) {
  *PortOf(&storage) = htons(static_cast<in_port_t>(port));
}

std::string SocketAddress::Host() const {
  char host[NI_MAXHOST] = "";
  const auto* const address = reinterpret_cast<const sockaddr*>(&storage);
  if (getnameinfo(address, length, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an address of no known kind";
  }
  return host;
}

std::string SocketAddress::Text() const {
  const bool v6 = storage.ss_family == AF_INET6;
  return Concat(v6 ? "[" : "", Host(), v6 ? "]:" : ":", port());
}

bool ParseNumeric(const std::string& host, int port, SocketAddress* address) {
  addrinfo* found = nullptr;
  if (Find(host, AI_NUMERICHOST, &found) != 0) return false;
  *address = From(*found, port);
  freeaddrinfo(found);
  return true;
}

Status Resolve(const std::string& host, int port, SocketAddress* address) {
  addrinfo* found = nullptr;
  const int error = Find(host, 0, &found);
  COLLOPS_CHECK_ARG(error == 0, ERROR_RT_FAIL, "\"", host,
                    "\" is not an address, and the name cannot be resolved: ",
                    error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  const addrinfo* best = found;
  while (best != nullptr && IsLoopback(*best)) best = best->ai_next;
  *address = From(best == nullptr ? *found : *best, port);
  freeaddrinfo(found);
  return Ok();
}

SocketAddress OwnAddress(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return {};
  }
  return address;
}

SocketAddress PeerAddress(int socket) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return {};
  }
  return address;
}

}  // namespace collops::control::tcp

#include "sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

namespace collops_sim {
namespace {

constexpr int kBacklog = 64;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

bool Parse(const std::string& name, Address* address) {
  const size_t colon = name.find(':');
  if (colon == std::string::npos) {
    auto* const local = reinterpret_cast<sockaddr_un*>(&address->storage);
    if (name.size() + 1 > sizeof(local->sun_path)) return false;
    local->sun_family = AF_UNIX;
    std::memcpy(local->sun_path + 1, name.data(), name.size());
    address->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return true;
  }
  auto* const internet = reinterpret_cast<sockaddr_in*>(&address->storage);
  internet->sin_family = AF_INET;
  internet->sin_port = htons(static_cast<uint16_t>(std::atoi(name.c_str() + colon + 1)));
  address->length = sizeof(sockaddr_in);
  return inet_pton(AF_INET, name.substr(0, colon).c_str(), &internet->sin_addr) == 1;
}

int Open(Address& address) {
  const int family = address.get()->sa_family;
  const int made = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  if (family == AF_INET) {
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  }
  return made;
}

std::string RandomName() {
  std::random_device random;
  return "collops-sim-" + std::to_string(random()) + std::to_string(random() % 10000);
}

}  // namespace

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double Limit(const char* variable, double fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atof(text);
}

std::string HostAddress() {
  for (const char* variable : {"COLLOPS_SIM_HOST_IP", "HCCL_IF_IP"}) {
    const char* text = std::getenv(variable);
    if (text != nullptr && *text != '\0') return text;
  }
  return "";
}

int ListenAnywhere(const std::string& host, std::string* name) {
  if (host.empty()) return Listen(*name = RandomName());
  const int listener = Listen(host + ":0");
  Address address;
  address.length = sizeof(address.storage);
  if (listener >= 0) getsockname(listener, address.get(), &address.length);
  const auto* const internet = reinterpret_cast<const sockaddr_in*>(&address.storage);
  *name = host + ":" + std::to_string(ntohs(internet->sin_port));
  return listener;
}

int Listen(const std::string& name) {
  Address address;
  if (!Parse(name, &address)) return -1;
  const int listener = Open(address);
  if (bind(listener, address.get(), address.length) == 0 && listen(listener, kBacklog) == 0) {
    return listener;
  }
  close(listener);
  return -1;
}

bool WaitFor(int descriptor, short events, double deadline) {
  for (;;) {
    const double left = deadline - Now();
    if (left <= 0) return false;
    pollfd polled{descriptor, events, 0};
    const int found = poll(&polled, 1, static_cast<int>(left * 1000) + 1);
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
  }
}

int AcceptUntil(int listener, double deadline) {
  if (!WaitFor(listener, POLLIN, deadline)) return -1;
  return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

int ConnectUntil(const std::string& name, double deadline) {
  Address address;
  if (!Parse(name, &address)) return -1;
  while (Now() < deadline) {
    const int found = Open(address);
    if (connect(found, address.get(), address.length) == 0) return found;
    int error = errno;
    socklen_t length = sizeof(error);
    if (error == EINPROGRESS && WaitFor(found, POLLOUT, deadline) &&
        getsockopt(found, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) {
      return found;
    }
    close(found);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return -1;
}

bool SendUntil(int peer, const void* data, size_t bytes, double deadline) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(peer, next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && (errno != EAGAIN || !WaitFor(peer, POLLOUT, deadline))) return false;
    if (sent < 0) continue;
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool ReceiveUntil(int peer, void* data, size_t bytes, double deadline) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(peer, next, bytes, 0);
    if (received == 0) return false;
    if (received < 0 && (errno != EAGAIN || !WaitFor(peer, POLLIN, deadline))) return false;
    if (received < 0) continue;
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

}  // namespace collops_sim

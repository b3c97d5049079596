#include "sim/sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace collops_sim {
namespace {

constexpr int kBacklog = 64;
constexpr int kMomentMs = 10;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  bool is_good = true;

  Address() = default;
  explicit Address(const std::string& name) {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) {
      auto* const local = reinterpret_cast<sockaddr_un*>(&storage);
      is_good = name.size() < sizeof(local->sun_path);
      if (!is_good) return;
      local->sun_family = AF_UNIX;
      std::memcpy(local->sun_path + 1, name.data(), name.size());
      length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
      return;
    }
    auto* const internet = reinterpret_cast<sockaddr_in*>(&storage);
    internet->sin_family = AF_INET;
    internet->sin_port = htons(static_cast<uint16_t>(std::atoi(name.c_str() + colon + 1)));
    is_good = inet_pton(AF_INET, name.substr(0, colon).c_str(), &internet->sin_addr) == 1;
    length = sizeof(sockaddr_in);
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  int Open() {
    const int made = socket(get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int yes = 1;
    if (get()->sa_family == AF_INET) {
      setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
      setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    }
    return made;
  }
};

bool MayTryAgain() {
  return errno == EAGAIN || errno == EINTR;
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

int Listen(const std::string& name) {
  Address address(name);
  if (!address.is_good) return -1;
  const int listener = address.Open();
  if (bind(listener, address.get(), address.length) == 0 && listen(listener, kBacklog) == 0) {
    return listener;
  }
  close(listener);
  return -1;
}

int ListenAnywhere(const std::string& host, std::string* name) {
  std::random_device random;
  *name = host.empty() ? "collops-sim-" + std::to_string(random()) + std::to_string(random())
                       : host + ":0";
  const int listener = Listen(*name);
  if (host.empty() || listener < 0) return listener;
  Address address;
  address.length = sizeof(address.storage);
  getsockname(listener, address.get(), &address.length);
  const auto* const internet = reinterpret_cast<const sockaddr_in*>(&address.storage);
  *name = host + ":" + std::to_string(ntohs(internet->sin_port));
  return listener;
}

void WaitAMoment(const Wished* wished, size_t count) {
  std::vector<pollfd> polled;
  for (size_t i = 0; i < count; ++i) polled.push_back({wished[i].descriptor, wished[i].events, 0});
  poll(polled.data(), polled.size(), kMomentMs);
}

int Accept(int listener, const Until& until) {
  while (!until.IsOver()) {
    const int found = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (found >= 0 || !MayTryAgain()) return found;
    const Wished wished{listener, POLLIN};
    WaitAMoment(&wished, 1);
  }
  return -1;
}

int Connect(const std::string& name, const Until& until) {
  Address address(name);
  if (!address.is_good) return -1;
  while (!until.IsOver()) {
    const int found = address.Open();
    if (connect(found, address.get(), address.length) == 0) return found;
    int error = errno;
    socklen_t length = sizeof(error);
    const Wished wished{found, POLLOUT};
    while (error == EINPROGRESS && !until.IsOver()) {
      WaitAMoment(&wished, 1);
      sockaddr_storage peer{};
      socklen_t size = sizeof(peer);
      if (getpeername(found, reinterpret_cast<sockaddr*>(&peer), &size) == 0) return found;
      if (getsockopt(found, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0) {
        error = EINPROGRESS;
      }
    }
    close(found);
    WaitAMoment(nullptr, 0);
  }
  return -1;
}

bool Send(int peer, const void* data, size_t bytes, const Until& until) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(peer, next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && (!MayTryAgain() || until.IsOver())) return false;
    if (sent < 0) {
      const Wished wished{peer, POLLOUT};
      WaitAMoment(&wished, 1);
      continue;
    }
    next += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool Receive(int peer, void* data, size_t bytes, const Until& until) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(peer, next, bytes, 0);
    if (received == 0) return false;
    if (received < 0 && (!MayTryAgain() || until.IsOver())) return false;
    if (received < 0) {
      const Wished wished{peer, POLLIN};
      WaitAMoment(&wished, 1);
      continue;
    }
    next += received;
    bytes -= static_cast<size_t>(received);
  }
  return true;
}

}  // namespace collops_sim

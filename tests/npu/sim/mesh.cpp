#include "mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <thread>

namespace collops_sim {
namespace {

constexpr size_t kNameBytes = 32;
constexpr double kConnectS = 120;
constexpr double kExecuteS = 1836;

struct Hello {
  int32_t rank = 0;
  int32_t size = 0;
  char name[kNameBytes] = {};
};

double Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double Limit(const char* variable, double fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atof(text);
}

std::string RandomName() {
  std::random_device random;
  return "collops-sim-" + std::to_string(random()) + std::to_string(random() % 10000);
}

int Socket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

sockaddr_un Address(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int Listen(const std::string& name) {
  socklen_t length = 0;
  const sockaddr_un address = Address(name, &length);
  const int listener = Socket();
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
      listen(listener, 64) == 0) {
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
  socklen_t length = 0;
  const sockaddr_un address = Address(name, &length);
  while (Now() < deadline) {
    const int found = Socket();
    if (connect(found, reinterpret_cast<const sockaddr*>(&address), length) == 0) return found;
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

// The listeners of this process's root infos, by name, until a communicator takes them.
std::mutex roots_mutex;
std::map<std::string, int>& Roots() {
  static auto* const roots = new std::map<std::string, int>;
  return *roots;
}

int TakeRoot(const std::string& name) {
  const std::lock_guard<std::mutex> lock(roots_mutex);
  const auto found = Roots().find(name);
  if (found == Roots().end()) return -1;
  const int listener = found->second;
  Roots().erase(found);
  return listener;
}

// Collects every rank's Hello and answers each with all names.
void Introduce(int root, int size, double deadline) {
  std::vector<int> guests;
  std::vector<Hello> hellos(static_cast<size_t>(size));
  while (guests.size() < hellos.size()) {
    const int guest = AcceptUntil(root, deadline);
    Hello hello;
    if (guest < 0 || !ReceiveUntil(guest, &hello, sizeof(hello), deadline)) break;
    if (hello.rank < 0 || hello.rank >= size || hello.size != size) break;
    hellos[static_cast<size_t>(hello.rank)] = hello;
    guests.push_back(guest);
  }
  for (const int guest : guests) {
    if (guests.size() == hellos.size()) {
      SendUntil(guest, hellos.data(), hellos.size() * sizeof(Hello), deadline);
    }
    close(guest);
  }
  close(root);
}

}  // namespace

std::string OpenRoot() {
  const std::string name = RandomName();
  const std::lock_guard<std::mutex> lock(roots_mutex);
  Roots()[name] = Listen(name);
  return name;
}

bool Mesh::Connect(const std::string& root_name, int rank, int size, std::string* error) {
  const double deadline = Now() + Limit("HCCL_CONNECT_TIMEOUT", kConnectS);
  const int root = TakeRoot(root_name);
  std::thread introducing;
  if (root >= 0) introducing = std::thread([=] { Introduce(root, size, deadline); });
  sockets_.assign(static_cast<size_t>(size), -1);
  names_.assign(static_cast<size_t>(size), RandomName());
  listener_ = Listen(names_[0]);
  const bool met = Meet(root_name, rank, size, deadline) && ConnectPeers(rank, size, deadline);
  if (introducing.joinable()) introducing.join();
  close(listener_);
  if (!met) *error = "not all ranks have come before HCCL_CONNECT_TIMEOUT";
  return met;
}

// Tells the root who this is and where, and learns where everybody else is.
bool Mesh::Meet(const std::string& root_name, int rank, int size, double deadline) {
  const int root = ConnectUntil(root_name, deadline);
  if (root < 0) return false;
  Hello mine;
  mine.rank = rank;
  mine.size = size;
  names_[0].copy(mine.name, kNameBytes - 1);
  std::vector<Hello> all(static_cast<size_t>(size));
  const bool met = SendUntil(root, &mine, sizeof(mine), deadline) &&
                   ReceiveUntil(root, all.data(), all.size() * sizeof(Hello), deadline);
  close(root);
  for (size_t r = 0; met && r < all.size(); ++r) names_[r] = all[r].name;
  return met;
}

// Connects to the ranks before, and lets those behind connect.
bool Mesh::ConnectPeers(int rank, int size, double deadline) {
  for (int peer = 0; peer < rank; ++peer) {
    const int found = ConnectUntil(names_[static_cast<size_t>(peer)], deadline);
    if (found < 0 || !SendUntil(found, &rank, sizeof(rank), deadline)) return false;
    sockets_[static_cast<size_t>(peer)] = found;
  }
  for (int i = rank + 1; i < size; ++i) {
    const int found = AcceptUntil(listener_, deadline);
    int peer = 0;
    if (found < 0 || !ReceiveUntil(found, &peer, sizeof(peer), deadline)) return false;
    sockets_[static_cast<size_t>(peer)] = found;
  }
  return true;
}

bool Mesh::Send(int peer, const void* data, size_t bytes) {
  const double deadline = Now() + Limit("HCCL_EXEC_TIMEOUT", kExecuteS);
  return SendUntil(sockets_[static_cast<size_t>(peer)], data, bytes, deadline);
}

bool Mesh::Receive(int peer, void* data, size_t bytes) {
  const double deadline = Now() + Limit("HCCL_EXEC_TIMEOUT", kExecuteS);
  return ReceiveUntil(sockets_[static_cast<size_t>(peer)], data, bytes, deadline);
}

// The peers' calls end; the descriptors stay until nobody can be using them.
void Mesh::Close() {
  for (const int peer : sockets_) {
    if (peer >= 0) shutdown(peer, SHUT_RDWR);
  }
}

Mesh::~Mesh() {
  for (const int peer : sockets_) {
    if (peer >= 0) close(peer);
  }
}

}  // namespace collops_sim

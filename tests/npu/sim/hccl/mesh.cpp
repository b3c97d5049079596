#include "mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "sockets.h"

namespace collops_sim {
namespace {

constexpr size_t kNameBytes = 64;
constexpr double kConnectS = 120;
constexpr double kExecuteS = 1836;

struct Hello {
  int32_t rank = 0;
  int32_t size = 0;
  char name[kNameBytes] = {};
};

double ConnectDeadline() {
  return Now() + Limit("HCCL_CONNECT_TIMEOUT", kConnectS);
}

// The listeners of this process's root infos, by name, until a communicator takes them.
std::mutex roots_mutex;
std::map<std::string, int>& Roots() {
  static auto* const roots = new std::map<std::string, int>;
  return *roots;
}

void PutRoot(const std::string& name, int listener) {
  const std::lock_guard<std::mutex> lock(roots_mutex);
  Roots()[name] = listener;
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
  std::set<int> ranks;
  std::vector<Hello> hellos(static_cast<size_t>(size));
  while (guests.size() < hellos.size()) {
    const int guest = AcceptUntil(root, deadline);
    Hello hello;
    if (guest < 0 || !ReceiveUntil(guest, &hello, sizeof(hello), deadline)) break;
    if (hello.rank < 0 || hello.rank >= size || hello.size != size) break;
    if (!ranks.insert(hello.rank).second) break;
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

std::string OpenRoot(const std::string& host) {
  std::string name;
  const int listener = ListenAnywhere(host, &name);
  PutRoot(name, listener);
  return name;
}

bool OpenRootAt(const std::string& name) {
  const int listener = Listen(name);
  if (listener >= 0) PutRoot(name, listener);
  return listener >= 0;
}

bool Mesh::Connect(const std::string& root_name, const std::string& host, int rank, int size,
                   std::string* error) {
  const double deadline = ConnectDeadline();
  const int root = TakeRoot(root_name);
  std::thread introducing;
  if (root >= 0) introducing = std::thread([=] { Introduce(root, size, deadline); });
  host_ = host;
  for (std::vector<int>& channel : sockets_) channel.assign(static_cast<size_t>(size), -1);
  names_.assign(static_cast<size_t>(size), "");
  listener_ = ListenAnywhere(host, &names_[0]);
  const bool met =
      listener_ >= 0 && Meet(root_name, rank, size, deadline) && ConnectPeers(rank, size, deadline);
  if (introducing.joinable()) introducing.join();
  if (!met) {
    *error = listener_ < 0 ? host + " is no address of this host"
                           : "not all ranks have come before HCCL_CONNECT_TIMEOUT";
  }
  if (listener_ >= 0) close(listener_);
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
  struct Greeting {
    int32_t rank;
    int32_t channel;
  };
  for (int peer = 0; peer < rank; ++peer) {
    for (int32_t channel = 0; channel < kNumChannels; ++channel) {
      const int found = ConnectUntil(names_[static_cast<size_t>(peer)], deadline);
      const Greeting greeting{rank, channel};
      if (found < 0 || !SendUntil(found, &greeting, sizeof(greeting), deadline)) return false;
      sockets_[channel][static_cast<size_t>(peer)] = found;
    }
  }
  for (int i = 0; i < (size - 1 - rank) * kNumChannels; ++i) {
    const int found = AcceptUntil(listener_, deadline);
    Greeting greeting{};
    if (found < 0 || !ReceiveUntil(found, &greeting, sizeof(greeting), deadline)) return false;
    sockets_[greeting.channel][static_cast<size_t>(greeting.rank)] = found;
  }
  return true;
}

int Mesh::Exchange(std::vector<Transfer> transfers) {
  const double deadline = Now() + Limit("HCCL_EXEC_TIMEOUT", kExecuteS);
  for (;;) {
    std::set<std::pair<int, bool>> busy;
    std::vector<pollfd> waiting;
    int peer = -1;
    bool moved = false;
    for (Transfer& next : transfers) {
      if (next.bytes == 0 || !busy.insert({next.peer, next.sends}).second) continue;
      peer = next.peer;
      const int descriptor = sockets_[kStreams][static_cast<size_t>(peer)];
      const ssize_t done = next.sends ? send(descriptor, next.data, next.bytes, MSG_NOSIGNAL)
                                      : recv(descriptor, next.data, next.bytes, 0);
      if (done == 0 || (done < 0 && errno != EAGAIN)) return peer;
      if (done < 0) {
        waiting.push_back({descriptor, static_cast<short>(next.sends ? POLLOUT : POLLIN), 0});
        continue;
      }
      next.data = static_cast<char*>(next.data) + done;
      next.bytes -= static_cast<size_t>(done);
      moved = true;
    }
    if (busy.empty()) return -1;
    if (moved) continue;
    const double left = deadline - Now();
    if (left <= 0) return peer;
    poll(waiting.data(), waiting.size(), static_cast<int>(left * 1000) + 1);
  }
}

bool Mesh::Tell(int peer, const void* data, size_t bytes) {
  return SendUntil(sockets_[kHosts][static_cast<size_t>(peer)], data, bytes, ConnectDeadline());
}

bool Mesh::Hear(int peer, void* data, size_t bytes) {
  return ReceiveUntil(sockets_[kHosts][static_cast<size_t>(peer)], data, bytes, ConnectDeadline());
}

// The peers' calls end; the descriptors stay until nobody can be using them.
void Mesh::Close() {
  for (const std::vector<int>& channel : sockets_) {
    for (const int peer : channel) {
      if (peer >= 0) shutdown(peer, SHUT_RDWR);
    }
  }
}

Mesh::~Mesh() {
  for (const std::vector<int>& channel : sockets_) {
    for (const int peer : channel) {
      if (peer >= 0) close(peer);
    }
  }
}

}  // namespace collops_sim

#include "nccl/mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "driver/report.h"
#include "nccl/sockets.h"

namespace collops_sim {
namespace {

constexpr size_t kNameBytes = 64;

struct Hello {
  int32_t rank = 0;
  int32_t size = 0;
  int32_t device = 0;
  char name[kNameBytes] = {};
  char host[kNameBytes] = {};
};

const std::atomic<bool> kNeverStopped{false};

size_t At(int rank) {
  return static_cast<size_t>(rank);
}

// Collects every rank's Hello and answers each with all of them.
void Introduce(int root) {
  const Until until{Now() + TimeoutS(), &kNeverStopped};
  std::vector<int> guests;
  std::vector<Hello> hellos(1);
  std::set<int> ranks;
  while (guests.size() < hellos.size()) {
    const int guest = Accept(root, until);
    Hello hello;
    if (guest < 0 || !Receive(guest, &hello, sizeof(hello), until)) break;
    if (guests.empty()) hellos.resize(At(hello.size));
    guests.push_back(guest);
    if (At(hello.size) != hellos.size() || !ranks.insert(hello.rank).second) {
      Mistake("the ranks of a communicator differ in its size, or two have the same rank");
      break;
    }
    hellos[At(hello.rank)] = hello;
  }
  for (const int guest : guests) {
    if (ranks.size() == hellos.size()) {
      Send(guest, hellos.data(), hellos.size() * sizeof(Hello), until);
    }
    close(guest);
  }
  close(root);
}

}  // namespace

std::string HostAddress() {
  const char* text = std::getenv("COLLOPS_SIM_HOST_IP");
  return text == nullptr ? "" : text;
}

std::string OpenRoot() {
  std::string name;
  const int listener = ListenAnywhere(HostAddress(), &name);
  if (listener < 0) return "";
  std::thread(Introduce, listener).detach();
  return name;
}

std::string Mesh::Connect(const std::string& root, int rank, int size, int device) {
  rank_ = rank;
  for (std::vector<int>& channel : sockets_) channel.assign(At(size), -1);
  names_.assign(At(size), "");
  listener_ = ListenAnywhere(HostAddress(), &names_[0]);
  if (listener_ < 0) return HostAddress() + " is no address of this host";
  const bool met = Meet(root, rank, size, device) && ConnectPeers(rank, size);
  close(listener_);
  return met ? "" : "not all ranks have come";
}

// Tells the root who this is and where, and learns where everybody else is.
bool Mesh::Meet(const std::string& root, int rank, int size, int device) {
  const Until until{Now() + TimeoutS(), &stopped_};
  const int place = collops_sim::Connect(root, until);
  if (place < 0) return false;
  Hello mine;
  mine.rank = rank;
  mine.size = size;
  mine.device = device;
  names_[0].copy(mine.name, kNameBytes - 1);
  HostAddress().copy(mine.host, kNameBytes - 1);
  std::vector<Hello> all(At(size));
  const bool met = Send(place, &mine, sizeof(mine), until) &&
                   Receive(place, all.data(), all.size() * sizeof(Hello), until);
  close(place);
  if (!met) return false;
  std::set<std::pair<std::string, int>> gpus;
  for (size_t r = 0; r < all.size(); ++r) {
    names_[r] = all[r].name;
    hosts_.push_back(all[r].host);
    if (!gpus.insert({all[r].host, all[r].device}).second) has_duplicates_ = true;
  }
  return true;
}

// Connects to the ranks before, and lets those behind connect.
bool Mesh::ConnectPeers(int rank, int size) {
  const Until until{Now() + TimeoutS(), &stopped_};
  struct Greeting {
    int32_t rank;
    int32_t channel;
  };
  for (int peer = 0; peer < rank; ++peer) {
    for (int32_t channel = 0; channel < kNumChannels; ++channel) {
      const int found = collops_sim::Connect(names_[At(peer)], until);
      const Greeting greeting{rank, channel};
      if (found < 0 || !Send(found, &greeting, sizeof(greeting), until)) return false;
      sockets_[channel][At(peer)] = found;
    }
  }
  for (int i = 0; i < (size - 1 - rank) * kNumChannels; ++i) {
    const int found = Accept(listener_, until);
    Greeting greeting{};
    if (found < 0 || !Receive(found, &greeting, sizeof(greeting), until)) return false;
    sockets_[greeting.channel][At(greeting.rank)] = found;
  }
  return true;
}

ptrdiff_t Mesh::Move(int descriptor, const Transfer& transfer) {
  const ssize_t done = transfer.sends
                           ? send(descriptor, transfer.data, transfer.bytes, MSG_NOSIGNAL)
                           : recv(descriptor, transfer.data, transfer.bytes, 0);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return done <= 0 ? -1 : done;
}

bool Mesh::Exchange(std::vector<Transfer> transfers, const std::function<void()>& on_wait) {
  const Until until{Now() + TimeoutS(), &stopped_};
  std::vector<bool> is_done(transfers.size(), false);
  while (!until.IsOver()) {
    std::set<std::tuple<Channel, int, bool>> busy;
    std::vector<Wished> wished;
    bool moved = false;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& next = transfers[i];
      if (is_done[i] || !busy.insert({next.channel, next.peer, next.sends}).second) continue;
      if (next.after >= 0 && !is_done[At(next.after)]) continue;
      const int descriptor = sockets_[next.channel][At(next.peer)];
      const ptrdiff_t done = next.bytes == 0 ? 0 : Move(descriptor, next);
      if (done < 0 && hosts_[At(next.peer)] != hosts_[At(rank_)]) has_lost_host_ = true;
      if (done > 0) {
        next.data = static_cast<char*>(next.data) + done;
        next.bytes -= static_cast<size_t>(done);
      }
      is_done[i] = next.bytes == 0;
      moved = moved || done > 0 || is_done[i];
      if (is_done[i] && next.then != nullptr && !next.then()) return false;
      if (done == 0 && !is_done[i]) {
        wished.push_back({descriptor, static_cast<short>(next.sends ? POLLOUT : POLLIN)});
      }
    }
    if (busy.empty()) return true;
    if (moved) continue;
    if (on_wait != nullptr) on_wait();
    WaitAMoment(wished.data(), wished.size());
  }
  return false;
}

bool Mesh::Tell(int peer, const void* data, size_t bytes) {
  return Send(sockets_[kHosts][At(peer)], data, bytes, {Now() + TimeoutS(), &stopped_});
}

bool Mesh::Hear(int peer, void* data, size_t bytes) {
  return Receive(sockets_[kHosts][At(peer)], data, bytes, {Now() + TimeoutS(), &stopped_});
}

Mesh::~Mesh() {
  for (const std::vector<int>& channel : sockets_) {
    for (const int peer : channel) {
      if (peer >= 0) close(peer);
    }
  }
}

}  // namespace collops_sim

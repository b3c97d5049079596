#include "sim/mesh.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "sim/faults.h"
#include "sim/sockets.h"

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
void Introduce(int root, double limit_s) {
  const Until until{Now() + limit_s, &kNeverStopped};
  std::vector<int> guests;
  std::vector<Hello> hellos(1);
  std::set<int> ranks;
  while (guests.size() < hellos.size()) {
    const int guest = Accept(root, until);
    Hello hello;
    if (guest < 0 || !Receive(guest, &hello, sizeof(hello), until)) break;
    if (guests.empty()) hellos.resize(At(hello.size));
    guests.push_back(guest);
    const bool fits = hello.rank >= 0 && hello.rank < hello.size;
    if (!fits || At(hello.size) != hellos.size() || !ranks.insert(hello.rank).second) {
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

// The bytes that were moved; -1: the peer is gone.
ptrdiff_t Move(int descriptor, const Transfer& transfer) {
  const ssize_t done = transfer.sends
                           ? send(descriptor, transfer.data, transfer.bytes, MSG_NOSIGNAL)
                           : recv(descriptor, transfer.data, transfer.bytes, 0);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return done <= 0 ? -1 : done;
}

}  // namespace

std::string OpenRoot(const std::string& host, double limit_s) {
  std::string name;
  const int listener = ListenAnywhere(host, &name);
  if (listener < 0) return "";
  std::thread(Introduce, listener, limit_s).detach();
  return name;
}

bool OpenRootAt(const std::string& name, double limit_s) {
  const int listener = Listen(name);
  if (listener >= 0) std::thread(Introduce, listener, limit_s).detach();
  return listener >= 0;
}

std::string Mesh::Connect(const std::string& root, const std::string& host, int rank, int size,
                          int device, double limit_s) {
  rank_ = rank;
  host_ = host;
  for (std::vector<int>& channel : sockets_) channel.assign(At(size), -1);
  names_.assign(At(size), "");
  listener_ = ListenAnywhere(host, &names_[0]);
  if (listener_ < 0) return host + " is no address of this host";
  const bool met = Meet(root, rank, size, device, limit_s) && ConnectPeers(rank, size, limit_s);
  close(listener_);
  return met ? "" : "not all ranks have come";
}

// Tells the root who this is and where, and learns where everybody else is.
bool Mesh::Meet(const std::string& root, int rank, int size, int device, double limit_s) {
  const Until until{Now() + limit_s, &stopped_};
  const int place = collops_sim::Connect(root, until);
  if (place < 0) return false;
  Hello mine;
  mine.rank = rank;
  mine.size = size;
  mine.device = device;
  names_[0].copy(mine.name, kNameBytes - 1);
  host_.copy(mine.host, kNameBytes - 1);
  std::vector<Hello> all(At(size));
  const bool met = Send(place, &mine, sizeof(mine), until) &&
                   Receive(place, all.data(), all.size() * sizeof(Hello), until);
  close(place);
  if (!met) return false;
  std::set<std::pair<std::string, int>> devices;
  for (size_t r = 0; r < all.size(); ++r) {
    names_[r] = all[r].name;
    if (!devices.insert({all[r].host, all[r].device}).second) has_duplicates_ = true;
  }
  return true;
}

// Connects to the ranks before, and lets those behind connect.
bool Mesh::ConnectPeers(int rank, int size, double limit_s) {
  const Until until{Now() + limit_s, &stopped_};
  const auto num_channels = static_cast<int32_t>(sockets_.size());
  struct Greeting {
    int32_t rank;
    int32_t channel;
  };
  for (int peer = 0; peer < rank; ++peer) {
    for (int32_t channel = 0; channel < num_channels; ++channel) {
      const int found = collops_sim::Connect(names_[At(peer)], until);
      const Greeting greeting{rank, channel};
      if (found < 0 || !Send(found, &greeting, sizeof(greeting), until)) return false;
      sockets_[At(channel)][At(peer)] = found;
    }
  }
  for (int i = 0; i < (size - 1 - rank) * num_channels; ++i) {
    const int found = Accept(listener_, until);
    Greeting greeting{};
    if (found < 0 || !Receive(found, &greeting, sizeof(greeting), until)) return false;
    sockets_[At(greeting.channel)][At(greeting.rank)] = found;
  }
  return true;
}

int Mesh::Exchange(std::vector<Transfer> transfers, double limit_s, Loss loss,
                   const std::function<void()>& on_wait) {
  const Until until{Now() + limit_s, &stopped_};
  std::vector<bool> is_done(transfers.size(), false);
  int waits_for = rank_;
  while (!until.IsOver()) {
    std::set<std::tuple<int, int, bool>> busy;
    std::vector<Wished> wished;
    bool moved = false;
    for (size_t i = 0; i < transfers.size(); ++i) {
      Transfer& next = transfers[i];
      if (is_done[i] || !busy.insert({next.channel, next.peer, next.sends}).second) continue;
      if (next.after >= 0 && !is_done[At(next.after)]) continue;
      const int descriptor = sockets_[At(next.channel)][At(next.peer)];
      const ptrdiff_t done = next.bytes == 0 ? 0 : Move(descriptor, next);
      if (done < 0 && loss == Loss::kEnds) return next.peer;
      if (done > 0) {
        next.data = static_cast<char*>(next.data) + done;
        next.bytes -= static_cast<size_t>(done);
      }
      is_done[i] = next.bytes == 0;
      moved = moved || done > 0 || is_done[i];
      if (is_done[i] && next.then != nullptr && !next.then()) return next.peer;
      if (!is_done[i]) waits_for = next.peer;
      if (done == 0 && !is_done[i]) {
        wished.push_back({descriptor, static_cast<short>(next.sends ? POLLOUT : POLLIN)});
      }
    }
    if (busy.empty()) return -1;
    if (moved) continue;
    if (on_wait != nullptr) on_wait();
    WaitAMoment(wished.data(), wished.size());
  }
  return waits_for;
}

bool Mesh::Tell(int channel, int peer, const void* data, size_t bytes, double limit_s) {
  return Send(sockets_[At(channel)][At(peer)], data, bytes, {Now() + limit_s, &stopped_});
}

bool Mesh::Hear(int channel, int peer, void* data, size_t bytes, double limit_s) {
  return Receive(sockets_[At(channel)][At(peer)], data, bytes, {Now() + limit_s, &stopped_});
}

bool Mesh::HasEnded(int channel, int peer) const {
  char byte;
  const ssize_t told =
      recv(sockets_[At(channel)][At(peer)], &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
  return told == 0 || (told < 0 && errno == ECONNRESET);
}

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

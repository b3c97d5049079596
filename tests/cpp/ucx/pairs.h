// Processes that are connected by workers of the backend ucx, over loopback or a network.
#ifndef COLLOPS_TESTS_CPP_UCX_PAIRS_H_
#define COLLOPS_TESTS_CPP_UCX_PAIRS_H_

#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/chunks.h"
#include "collops/comm/backends/ucx/engine/worker.h"
#include "ranks.h"
#include "ucx/installed.h"

namespace ucx_tests {

using collops::Deadline;
using collops::Status;
using collops::ucx::Request;
using collops::ucx::Tag;
using collops::ucx::TagKind;
using collops::ucx::Watch;
using collops::ucx::Worker;

inline const double kLimitS = check::Patience(30.0);

// Waits for requests as Worker::Until() does; the first error of one of them.
inline Status Wait(Worker& worker, const char* what, Request* requests, size_t count,
                   const Watch& watch, const Deadline& deadline) {
  const auto done = [&] {
    return std::all_of(requests, requests + count,
                       [&](Request& request) { return worker.Test(&request); });
  };
  COLLOPS_RETURN_IF_ERROR(worker.Until(what, done, watch, deadline));
  for (size_t i = 0; i < count; ++i) COLLOPS_RETURN_IF_ERROR(worker.StatusOf(requests[i]));
  return collops::Ok();
}

// Sockets between each two of the processes, made before they are forked: the host connections.
class Mesh {
 public:
  explicit Mesh(int size) : size_(size), ends_(static_cast<size_t>(size * size), -1) {
    for (int a = 0; a < size; ++a) {
      for (int b = 0; b < a; ++b) {
        int pair[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
        At(a, b) = pair[0];
        At(b, a) = pair[1];
      }
    }
  }
  ~Mesh() {
    for (const int end : ends_) {
      if (end >= 0) close(end);
    }
  }
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  int size() const { return size_; }
  void Say(int me, int peer, const std::string& text) const {
    EXPECT_EQ(send(At(me, peer), text.data(), text.size(), MSG_NOSIGNAL), text.size());
  }
  // Empty at the end of the peer.
  std::string Hear(int me, int peer) const {
    char text[4096];
    const ssize_t bytes = recv(At(me, peer), text, sizeof(text), 0);
    return bytes > 0 ? std::string(text, static_cast<size_t>(bytes)) : std::string();
  }
  // All ranks meet.
  void Meet(int me) const {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != me) Say(me, peer, "here");
    }
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != me) EXPECT_EQ(Hear(me, peer), "here");
    }
  }
  // In the process of `me` (-1: of none): closes the others' ends, so that an end is noticed.
  void Keep(int me) {
    for (int a = 0; a < size_; ++a) {
      for (int b = 0; b < size_; ++b) {
        if (a == me || a == b) continue;
        close(At(a, b));
        At(a, b) = -1;
      }
    }
  }
  int At(int me, int peer) const { return ends_[static_cast<size_t>(me * size_ + peer)]; }

 private:
  int& At(int me, int peer) { return ends_[static_cast<size_t>(me * size_ + peer)]; }

  int size_;
  std::vector<int> ends_;
};

// A worker connected to all others; null after a failed expectation.
inline std::unique_ptr<Worker> Connected(const Mesh& mesh, int me) {
  std::unique_ptr<Worker> worker;
  EXPECT_EQ(Worker::Create(mesh.size(), &worker).message(), "");
  if (worker == nullptr) return nullptr;
  for (int peer = 0; peer < mesh.size(); ++peer) {
    if (peer != me) mesh.Say(me, peer, worker->address());
  }
  for (int peer = 0; peer < mesh.size(); ++peer) {
    if (peer == me) continue;
    worker->Know(peer, mesh.Hear(me, peer));
    EXPECT_EQ(worker->Connect(peer).message(), "");
  }
  return worker;
}

struct Entry {
  const Mesh& mesh;
  int me;
  Worker& worker;
};

// Each process runs `body`; all are expected to end well, except `victim`, which may end in any
// way.
inline void RunConnected(int size, const std::function<void(const Entry&)>& body, int victim = -1) {
  Mesh mesh(size);
  std::vector<pid_t> pids;
  for (int me = 0; me < size; ++me) {
    pids.push_back(ranks::Start([&] {
      mesh.Keep(me);
      if (!IsThere()) return void(std::puts("skipped: no UCX is installed"));
      const std::unique_ptr<Worker> worker = Connected(mesh, me);
      if (worker != nullptr) body({mesh, me, *worker});
    }));
  }
  mesh.Keep(-1);  // the children have their own copies
  for (int me = 0; me < size; ++me) {
    const ranks::Ended ended = ranks::Wait(pids[static_cast<size_t>(me)], 2 * kLimitS);
    if (me == victim) continue;
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

// Everything that was sent has left, here and at the peers: a flush needs the peer's progress.
inline void Settle(const Entry& e, const std::vector<int>& peers) {
  EXPECT_EQ(e.worker.Flush(Deadline::After(kLimitS)).message(), "");
  size_t heard = 0;
  for (const int peer : peers) e.mesh.Say(e.me, peer, "flushed");
  const auto all = [&] {
    for (; heard < peers.size(); ++heard) {
      pollfd update = {e.mesh.At(e.me, peers[heard]), POLLIN, 0};
      if (poll(&update, 1, 0) == 0) return false;
      EXPECT_EQ(e.mesh.Hear(e.me, peers[heard]), "flushed");
    }
    return true;
  };
  const Watch watch = {{}, [] { return collops::Ok(); }};
  EXPECT_EQ(e.worker.Until("the flush", all, watch, Deadline::After(kLimitS)).message(), "");
}

inline void Settle(const Entry& e) {
  std::vector<int> peers;
  for (int peer = 0; peer < e.mesh.size(); ++peer) {
    if (peer != e.me) peers.push_back(peer);
  }
  Settle(e, peers);
}

// A byte that differs per sender, receiver and position.
inline std::byte ByteAt(int from, int to, size_t position) {
  const uint64_t mixed = (position + 1) * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(from) * 131 +
                         static_cast<uint64_t>(to) * 31;
  return static_cast<std::byte>(mixed >> 40);
}
inline std::vector<std::byte> DataOf(int from, int to, size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = ByteAt(from, to, i);
  return data;
}

}  // namespace ucx_tests

#endif  // COLLOPS_TESTS_CPP_UCX_PAIRS_H_

// Connections of this host to itself, for tests.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "collops/comm/control/first_contact/connection.h"
#include "collops/comm/control/first_contact/job_listener.h"

namespace loopback {

using collops::Status;
using collops::control::Connection;
using collops::control::Frame;
using collops::control::Listener;
using collops::control::SocketAddress;

inline const double kLimitS = check::Patience(30);

// False if it does not come true in `limit_s`, which fails the test.
inline bool Await(const std::function<bool()>& done, double limit_s = kLimitS) {
  const auto deadline = collops::Deadline::After(limit_s);
  while (!done()) {
    if (deadline.Passed()) return EXPECT_TRUE(!"it came in time");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

inline SocketAddress At(const std::string& host, int port = 0) {
  SocketAddress address;
  EXPECT_EQ(collops::control::Resolve(host, port, &address).message(), "");
  return address;
}

inline Listener ListenAt(const std::string& host, int port = 0) {
  Listener listener;
  EXPECT_EQ(Listener::Open(At(host, port), &listener).message(), "");
  return listener;
}

inline Frame FrameOf(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return Frame(begin, begin + text.size());
}

inline std::string TextOf(const Frame& frame) {
  return std::string(reinterpret_cast<const char*>(frame.data()), frame.size());
}

// The two ends of a connection.
struct Ends {
  explicit Ends(const std::string& host = "127.0.0.1") {
    Listener listener = ListenAt(host);
    first = std::make_unique<Connection>(listener.address());
    collops::control::UniqueFd socket;
    Await([&] { return (socket = listener.Accept()).valid(); });
    raw = socket.get();
    second = std::make_unique<Connection>(std::move(socket));
  }
  std::unique_ptr<Connection> first;
  std::unique_ptr<Connection> second;
  int raw = -1;  // of the second
};

// A plain socket that sends what the test says: a stranger.
class Stranger {
 public:
  explicit Stranger(const SocketAddress& to)
      : socket_(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto* const address = reinterpret_cast<const sockaddr*>(&to.storage);
    EXPECT_EQ(connect(socket_.get(), address, to.length), 0);
  }
  void Say(const std::string& bytes) const {
    static_cast<void>(!send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  int socket() const { return socket_.get(); }
  // What the other end said until now, and whether it has hung up.
  bool HungUp(std::string* said = nullptr) {
    char bytes[4096];
    for (;;) {
      const ssize_t count = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count > 0 && said != nullptr) said->append(bytes, static_cast<size_t>(count));
      if (count > 0) continue;
      return count == 0 || errno != EAGAIN;
    }
  }
  // Ends with a reset instead of an orderly close.
  void Reset() {
    const linger none = {1, 0};
    EXPECT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof(none)), 0);
    socket_.reset();
  }

 private:
  collops::control::UniqueFd socket_;
};

// Lets this process open `more` descriptors beyond those it has, until the end of the scope.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t more) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = dup(0);
    close(next);
    const rlimit few = {static_cast<rlim_t>(next) + more, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_;
};

}  // namespace loopback

// Frames over one TCP connection: whole, in order, bounded; and why a connection ended.
#include "collops/comm/control/first_contact/connection.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <fstream>

#include "control/first_contact/loopback.h"

namespace {

using namespace loopback;
using collops::Deadline;
using collops::control::ConnectionState;
using collops::control::kMostFrameBytes;
using collops::control::UniqueFd;

Frame Numbered(int number, size_t bytes) {
  Frame frame(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    frame[i] = static_cast<std::byte>((static_cast<size_t>(number) * 31 + i * 7) & 0xff);
  }
  return frame;
}

int Option(int socket, int level, int option) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(socket, level, option, &value, &length), 0);
  return value;
}

bool Ended(Connection& connection) {
  Frame frame;
  return !connection.Receive(&frame) && !connection.alive();
}

}  // namespace

// Bytes that arrive one by one make the same frames.
TEST(AFrameIsAssembledFromPieces) {
  Listener listener = ListenAt("127.0.0.1");
  Stranger slow(listener.address());
  UniqueFd socket;
  Await([&] { return (socket = listener.Accept()).valid(); });
  Connection connection(std::move(socket));
  Frame frame;
  for (const char byte : std::string("\0\0\0\3ab", 6)) {
    slow.Say(std::string(1, byte));
    EXPECT_FALSE(connection.Receive(&frame));
  }
  slow.Say(std::string("c\0\0\0\0\0\0\0\1z", 10));
  for (const char* want : {"abc", "", "z"}) {
    Await([&] { return connection.Receive(&frame); });
    EXPECT_EQ(TextOf(frame), want);
  }
}

TEST(TheQueueIsBounded) {
  Ends ends;
  const Frame frame = Numbered(1, 50000);
  int sent = 0;
  while (ends.first->Send(frame)) ASSERT_TRUE(++sent < 1000);
  EXPECT_FALSE(ends.first->flushed());
  EXPECT_TRUE((ends.first->Polled().events & POLLOUT) != 0);
  Frame got;
  int arrived = 0;
  Await([&] {
    ends.first->Flush();
    if (ends.second->Receive(&got)) ++arrived;
    return arrived == sent;
  });
  EXPECT_TRUE(ends.first->flushed() && ends.first->Send(frame));
  EXPECT_FALSE(ends.first->Send(Frame(kMostFrameBytes + 1)));
}

// The length is checked before a byte of the frame is awaited.
TEST(AFrameThatIsTooLongEndsTheConnection) {
  for (const std::string& bytes :
       {std::string("\0\1\0\1", 4), std::string("GET / HTTP/1.1\r\n\r\n")}) {
    Listener listener = ListenAt("127.0.0.1");
    Stranger stranger(listener.address());
    UniqueFd socket;
    Await([&] { return (socket = listener.Accept()).valid(); });
    Connection connection(std::move(socket));
    stranger.Say(bytes);
    Await([&] { return Ended(connection); });
    EXPECT_TRUE(connection.state() == ConnectionState::kBroken);
    EXPECT_CONTAINS(connection.ended().message(), "at most 65536 are allowed");
  }
}

TEST(TheOptionsAreSetOnBothEnds) {
  Ends ends("::1");
  Await([&] {
    ends.first->Flush();
    return ends.first->state() == ConnectionState::kOpen;
  });
  for (const int socket : {ends.first->Polled().fd, ends.second->Polled().fd}) {
    EXPECT_EQ(Option(socket, IPPROTO_TCP, TCP_NODELAY), 1);
    EXPECT_EQ(Option(socket, SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(Option(socket, IPPROTO_TCP, TCP_KEEPIDLE), 1);
    EXPECT_EQ(Option(socket, IPPROTO_TCP, TCP_KEEPINTVL), 1);
    EXPECT_EQ(Option(socket, IPPROTO_TCP, TCP_KEEPCNT), 3);
    EXPECT_EQ(Option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT), 4000);
    EXPECT_TRUE((fcntl(socket, F_GETFD) & FD_CLOEXEC) != 0);
  }
}

// Finish() while the other end still sends: a plain close would destroy what was sent last.
TEST(TheLastFramesArriveAlsoIfTheOtherEndSends) {
  for (int i = 0; i < 50; ++i) {
    Ends ends;
    for (int k = 0; k < 20; ++k) EXPECT_TRUE(ends.second->Send(Numbered(k, 30000)));
    int sent = 0;
    while (sent < 40 && ends.first->Send(Numbered(sent, 20000))) ++sent;
    std::thread finisher([&] { ends.first->Finish(Deadline::After(kLimitS)); });
    Frame frame;
    int got = 0;
    Await([&] {
      while (ends.second->Receive(&frame)) EXPECT_TRUE(frame == Numbered(got++, 20000));
      return !ends.second->alive();
    });
    finisher.join();
    EXPECT_EQ(got, sent);
  }
}

TEST(AResetIsSeenAfterTheLastFrame) {
  Listener listener = ListenAt("127.0.0.1");
  Stranger stranger(listener.address());
  UniqueFd socket;
  Await([&] { return (socket = listener.Accept()).valid(); });
  Connection connection(std::move(socket));
  stranger.Say(std::string("\0\0\0\1x", 5));
  pollfd arrived = {connection.Polled().fd, POLLIN, 0};
  EXPECT_EQ(poll(&arrived, 1, 10000), 1);
  stranger.Reset();
  Await([&] { return !connection.Send(FrameOf("is anybody there?")); });
  Frame frame;
  EXPECT_TRUE(connection.Receive(&frame) && TextOf(frame) == "x");
  Await([&] { return Ended(connection); });
  EXPECT_TRUE(connection.state() == ConnectionState::kReset ||
              connection.state() == ConnectionState::kClosed);
  EXPECT_EQ(connection.ended().code(), collops::ERROR_PEER_LOST);
}

// A socket that connects to a free port of its own host may get that very port, and meet itself.
TEST(AConnectionToItselfIsNone) {
  std::ifstream range("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  ASSERT_TRUE(range >> first);
  for (int i = 0; i < 60000; ++i) {
    // Kernels choose even ports first.
    Connection connection(At("127.0.0.1", first + 100 + i % 2));
    while (connection.state() == ConnectionState::kConnecting) connection.Flush();
    // Another program of this machine may listen there; then the own port is another one.
    if (connection.own_address().port() != first + 100 + i % 2) continue;
    ASSERT_TRUE(connection.state() == ConnectionState::kRefused);
  }
}

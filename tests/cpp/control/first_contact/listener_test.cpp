// Listening at one address: taken and foreign ports, clients that are aborted, few descriptors.
#include "collops/comm/control/first_contact/job_listener.h"

#include <algorithm>
#include <cstdlib>

#include "control/first_contact/loopback.h"

namespace {

using namespace loopback;
using collops::control::UniqueFd;

}  // namespace

// The port of a listener that has just ended, with connections, is free.
TEST(APortIsFreeAtOnceAfterItsListener) {
  Listener first = ListenAt("127.0.0.1");
  const int port = first.address().port();
  Connection client(first.address());
  UniqueFd server;
  Await([&] { return (server = first.Accept()).valid(); });
  first.Close();
  server.reset();
  EXPECT_TRUE(ListenAt("127.0.0.1", port).valid());
}

// Also beside a taken port; with none left the error names the range.
TEST(AFreePortIsOneOfTheRange) {
  const Listener taken = ListenAt("127.0.0.1");
  const int first = taken.address().port();
  Listener next = ListenAt("127.0.0.1", first + 1 <= 65535 ? first + 1 : first - 1);
  const int low = std::min(first, next.address().port());
  const std::string range = std::to_string(low) + "-" + std::to_string(low + 1);
  setenv("COLLOPS_PORT_RANGE", range.c_str(), 1);
  Listener none;
  EXPECT_EQ(Listener::Open(At("127.0.0.1"), &none).message(),
            "cannot listen at 127.0.0.1: all ports of COLLOPS_PORT_RANGE=" + range +
                " are taken: name more ports, on all hosts");
  const int freed = next.address().port();
  next.Close();
  EXPECT_EQ(ListenAt("127.0.0.1").address().port(), freed);
  unsetenv("COLLOPS_PORT_RANGE");
}

TEST(AddressesThatCannotBe) {
  Listener listener;
  EXPECT_CONTAINS(Listener::Open(At("192.0.2.1"), &listener).message(),
                  "cannot listen at 192.0.2.1:0: this host does not have the address");
  EXPECT_CONTAINS(Listener::Open(At("0.0.0.0", 7), &listener).message(),
                  "0.0.0.0:7 means every address of the host");
  EXPECT_CONTAINS(Listener::Open(At("::", 7), &listener).message(), "[::]:7 means every address");
  SocketAddress none;
  // Longer than a name can be, so no name server is asked.
  EXPECT_CONTAINS(collops::control::Resolve(std::string(300, 'x'), 1, &none).message(),
                  "xx\" is not an address, and the name cannot be resolved");
}

TEST(AnAbortedClientDoesNoHarm) {
  Listener listener = ListenAt("127.0.0.1");
  for (int i = 0; i < 5; ++i) Stranger(listener.address()).Reset();
  Connection sound(listener.address());
  Await([&] {
    const UniqueFd client = listener.Accept();
    return client.valid() &&
           collops::control::PeerAddress(client.get()).Text() == sound.own_address().Text();
  });
}

// With no descriptor left, clients are turned away and none wakes poll() again; then all is well.
TEST(FewDescriptorsTurnClientsAway) {
  Listener listener = ListenAt("127.0.0.1");
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 3; ++i) strangers.push_back(std::make_unique<Stranger>(listener.address()));
  {
    const FewDescriptors none(0);
    pollfd polled = {listener.socket(), POLLIN, 0};
    EXPECT_EQ(poll(&polled, 1, 10000), 1);
    // The last of them may come to the queue a little after its connect() has returned.
    Await([&] {
      EXPECT_FALSE(listener.Accept().valid());
      return listener.turned_away() == 3;
    });
    EXPECT_EQ(poll(&polled, 1, 0), 0);
    for (const auto& stranger : strangers) Await([&] { return stranger->HungUp(); });
  }
  const Stranger next(listener.address());
  Await([&] { return listener.Accept().valid(); });
}

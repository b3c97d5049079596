// Listening at one address: taken and foreign ports, clients that are aborted, few descriptors.
#include "collops/comm/control/first_contact/job_listener.h"

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

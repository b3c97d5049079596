// Who owns the listener of a rank of several hosts: the groups that it is in, one of which was
// shrunk to another one.
#include "collops/comm/control/hosts/lobby.h"

#include "control/first_contact/loopback.h"
#include "control/hosts.h"

namespace {

using collops::control::Connection;
using collops::control::ConnectionState;
using collops::control::JobListener;
using collops::control::JobSecret;
using collops::control::Lobby;
using collops::control::RollMessage;
using collops::control::SocketAddress;

const double kTimeoutS = check::Patience(20);

bool IsReached(const SocketAddress& address) {
  Connection caller(address);
  loopback::Await([&] {
    caller.Flush();
    return caller.state() != ConnectionState::kConnecting;
  });
  return caller.alive();
}

struct TwoGroups {
  TwoGroups() {
    EXPECT_EQ(lobby->listener().Open(loopback::At("127.0.0.1")).message(), "");
    address = lobby->listener().address();
    // A rank beside which another one runs the watcher.
    before = ranks.Make(1, kTimeoutS, lobby);
    after = left.Make(1, kTimeoutS, lobby);
    lobby.reset();
  }

  std::shared_ptr<Lobby> lobby =
      std::make_shared<Lobby>(std::make_unique<JobListener>(JobSecret{"a job", "a key"}));
  SocketAddress address;
  hosts::Hosts ranks{std::make_shared<hosts::Wire>(2), {0, 0, 1}};
  hosts::Hosts left{std::make_shared<hosts::Wire>(2), {0, 0, 1}};
  std::shared_ptr<collops::Communicator> before, after;
};

}  // namespace

TEST(TheListenerClosesWithTheLastGroupThatIsLeft) {
  TwoGroups groups;
  // The new group did not come about, for whatever reason.
  groups.after.reset();
  EXPECT_TRUE(IsReached(groups.address));
  EXPECT_TRUE(collops::ControlOf(*groups.before).lobby() != nullptr);
  // Nobody waits at a rank that has left, although its communicator is still there.
  groups.before->Close("it goes");
  EXPECT_FALSE(IsReached(groups.address));
  EXPECT_TRUE(collops::ControlOf(*groups.before).lobby() == nullptr);
}

TEST(TheNewGroupKeepsTheListenerWhenTheOldOneIsLeft) {
  TwoGroups groups;
  collops::ControlOf(*groups.before).Close("it goes on", collops::control::kGoesOn);
  groups.before.reset();
  EXPECT_TRUE(IsReached(groups.address));
  groups.after->Close("it goes");
  EXPECT_FALSE(IsReached(groups.address));
}

// Another thread closes the communicator of a rank that is in the roll call.
TEST(WhoUsesTheListenerKeepsItSoLong) {
  TwoGroups groups;
  groups.after.reset();
  std::shared_ptr<Lobby> used = collops::ControlOf(*groups.before).lobby();
  groups.before->Close("it goes");
  EXPECT_TRUE(IsReached(groups.address));
  used.reset();
  EXPECT_FALSE(IsReached(groups.address));
}

// A job may shrink for as long as it runs.
TEST(TheLatestDecisionsAreKept) {
  Lobby lobby(nullptr);
  const auto keep = [&](int group, int rank) {
    RollMessage decision;
    decision.group = std::to_string(group);
    decision.rank = rank;
    lobby.Keep(decision);
  };
  for (int group = 0; group < 100; ++group) keep(group, 1);
  keep(99, 2);
  EXPECT_TRUE(lobby.DecisionOf("0") == nullptr);
  for (const char* group : {"50", "99"}) {
    ASSERT_TRUE(lobby.DecisionOf(group) != nullptr);
    EXPECT_EQ(lobby.DecisionOf(group)->rank, 1);
  }
}

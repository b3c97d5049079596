// The rank that speaks for its host at first contact, and the others there that it speaks for: each
// may leave or end at any time, and all are told whose fault it was.
#include "collops/comm/control/first_contact/rendezvous.h"

#include <sys/un.h>

#include "collops/comm/control/first_contact/local_socket.h"
#include "control/first_contact/ranks_that_meet.h"

namespace {

using namespace collops;
using collops::control::HostRelay;
using collops::control::Listener;
using collops::control::Rendezvous;
using collops::control::RendezvousSpec;
using collops::control::Row;
using collops::control::UniqueFd;
using loopback::ByHand;
using loopback::ExpectWell;
using loopback::Kill;
using loopback::kMeetS;
using loopback::Meet;

// A group of `rank_size` ranks at a port that no other test has.
class Group {
 public:
  explicit Group(int rank_size, std::string host = "127.0.0.1")
      : rank_size_(rank_size), host_(std::move(host)), port_(loopback::FreePort()) {}

  RendezvousSpec SpecOf(int rank) const { return loopback::SpecOf(rank, rank_size_, port_, host_); }

  // A process for the rank, which meets the others and gets that.
  pid_t Start(int rank, ErrorCode code, std::vector<std::string> texts,
              double timeout_s = kMeetS) const {
    const RendezvousSpec spec = SpecOf(rank);
    return ranks::Start([spec, code, texts, timeout_s] {
      const Status status = Meet(spec, timeout_s);
      EXPECT_EQ(status.code(), code);
      for (const std::string& text : texts) EXPECT_CONTAINS(status.message(), text);
    });
  }
  pid_t StartWell(int rank) const { return Start(rank, NO_ERROR, {}); }

  // Until a rank speaks for this host: those that start later follow it.
  void AwaitRelay() const {
    pid_t pid = 0;
    const std::string name = HostRelay::NameOf(SpecOf(1));
    loopback::Await([&] { return HostRelay::Reach(name, &pid).valid(); });
  }

 private:
  int rank_size_;
  std::string host_;
  int port_;
};

}  // namespace

// It opens the port later than another rank speaks for its host: a name is looked up first, and a
// communicator that ends may still have the port.
TEST(TheRankThatIsToOpenThePortDoesSoBesideARelay) {
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    const Group group(3, host);
    const auto spec_of = [&](int rank) {
      RendezvousSpec spec = group.SpecOf(rank);
      spec.has_port = rank == 2;
      return spec;
    };
    const auto start = [&](int rank) {
      return ranks::Start([&] { EXPECT_EQ(Meet(spec_of(rank)).message(), ""); });
    };
    const pid_t relay = start(1);
    group.AwaitRelay();
    const pid_t opener = ranks::Start([&] {
      Listener before = loopback::ListenAt("127.0.0.1", spec_of(2).port);
      std::vector<Row> rows;
      const auto rendezvous = Rendezvous::Create(spec_of(2));
      rendezvous->Begin();
      before.Close();
      const Deadline deadline = Deadline::After(kMeetS);
      EXPECT_EQ(rendezvous->Complete(deadline, &rows).message(), "");
      EXPECT_EQ(rendezvous->Finish(Ok(), deadline).message(), "");
    });
    ExpectWell({relay, opener, start(0)});
  }
}

TEST(AFollowerThatEndsIsReported) {
  const Group group(5);
  const pid_t relay = group.Start(1, ERROR_PEER_LOST,
                                  {"rank 2 (pid ", " on 127.0.0.1) ended during first contact",
                                   "to the rank that speaks for its host"});
  group.AwaitRelay();
  const pid_t doomed = group.StartWell(2);
  const pid_t leader = group.Start(0, ERROR_PEER_LOST, {"rank 2 (pid ", "ended during first"});
  ByHand other(group.SpecOf(3));
  other.AwaitMissing("rank 4 of 5");
  Kill(doomed);
  ExpectWell({relay, leader});
}

TEST(AFollowerThatLeavesIsReported) {
  const Group group(4);
  const pid_t relay = group.Start(1, ERROR_TIMEOUT, {"rank 2 left first contact", "rank 3 of 4"});
  group.AwaitRelay();
  const pid_t leaves = group.Start(2, ERROR_TIMEOUT, {"rank 3 of 4 did not connect within 3 s"}, 3);
  const pid_t leader = group.Start(0, ERROR_TIMEOUT, {"rank 2 left first contact", "rank 3 of 4"});
  ExpectWell({relay, leaves, leader});
}

// It has one descriptor, which it needs to reach the relay.
TEST(AFollowerThatCannotSayWhereItIsIsReported) {
  const Group group(3);
  const std::string text = "too many open files";
  const pid_t relay = group.Start(1, ERROR_RT_FAIL, {"rank 2 left first contact", text});
  group.AwaitRelay();
  const pid_t fails = ranks::Start([&] {
    const loopback::FewDescriptors one(1);
    EXPECT_CONTAINS(Meet(group.SpecOf(2)).message(), text);
  });
  const pid_t leader = group.Start(0, ERROR_RT_FAIL, {"rank 2 left first contact", text});
  ExpectWell({relay, fails, leader});
}

TEST(TheEndOfTheRelayIsReported) {
  const Group group(5);
  const pid_t doomed = group.StartWell(1);
  group.AwaitRelay();
  const pid_t follower = group.Start(
      2, ERROR_PEER_LOST, {"rank 1, which speaks for this host, ended during first contact"});
  const pid_t leader = group.Start(0, ERROR_PEER_LOST, {"rank 1 (pid ", "ended during first"});
  ByHand other(group.SpecOf(3));
  other.AwaitMissing("rank 4 of 5");
  Kill(doomed);
  ExpectWell({follower, leader});
}

// Before it has reached rank 0 it holds up no one: another rank speaks, and it may come again.
TEST(AnotherRankSpeaksIfTheFirstGivesUpOrEnds) {
  for (const bool killed : {false, true}) {
    const Group group(3);
    const pid_t first =
        killed ? group.StartWell(1)
               : group.Start(1, ERROR_TIMEOUT, {"rank 0 did not connect within 0.5 s"}, 0.5);
    group.AwaitRelay();
    const pid_t follower = group.StartWell(2);
    if (killed) {
      Kill(first);
    } else {
      ExpectWell({first});
    }
    ExpectWell({follower, group.StartWell(1), group.StartWell(0)});
  }
}

// What rank 0 says of a third host reaches a follower as it is.
TEST(FollowersGetTheWordOfRankZero) {
  const Group group(4);
  const std::string text = "rank 7 (pid ";
  const pid_t relay = group.Start(1, ERROR_RANK_MISMATCH, {text, "is not one of the 4 ranks"});
  group.AwaitRelay();
  const pid_t follower =
      group.Start(2, ERROR_RANK_MISMATCH, {"comm_domain \"dp\" at 127.0.0.1", text});
  const pid_t leader = group.Start(0, ERROR_RANK_MISMATCH, {text});
  const pid_t wrong = ranks::Start([&] { ByHand(group.SpecOf(7)).AwaitMissing("nobody"); });
  ExpectWell({relay, follower, leader});
  Kill(wrong);
}

TEST(AFollowerSaysWhatItsRelayWaitsFor) {
  const Group group(3);
  const pid_t relay = group.Start(1, ERROR_TIMEOUT, {"rank 0 did not connect within 6 s"}, 6);
  group.AwaitRelay();
  const pid_t follower =
      group.Start(2, ERROR_TIMEOUT, {"rank 0 did not connect within 3 s", "nobody listens at"}, 3);
  ExpectWell({relay, follower});
}

// A socket that has the name and does not listen: each rank then speaks for itself.
TEST(ANameThatLeadsNowhereHoldsUpNoGroup) {
  const Group group(3);
  const std::string name = HostRelay::NameOf(group.SpecOf(1));
  const UniqueFd holder(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(bind(holder.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  ExpectWell({group.StartWell(0), group.StartWell(1), group.StartWell(2)});
}

TEST(ARelayWithoutDescriptorsSaysSo) {
  const Group group(3);
  const std::string name = HostRelay::NameOf(group.SpecOf(1));
  HostRelay relay;
  ASSERT_TRUE(relay.Open(name));
  pid_t pid = 0;
  const UniqueFd follower = HostRelay::Reach(name, &pid);
  EXPECT_EQ(pid, getpid());
  const loopback::FewDescriptors none(0);
  EXPECT_CONTAINS(relay.Serve(nullptr).message(), "too many open files");
}

// Whoever is of another group has another name; so has who knows another key.
TEST(NamesDiffer) {
  const Group group(3);
  const RendezvousSpec spec = group.SpecOf(1);
  EXPECT_EQ(HostRelay::NameOf(spec), HostRelay::NameOf(group.SpecOf(2)));
  std::vector<RendezvousSpec> others(6, spec);
  others[0].domain = "tp";
  others[1].rank_size = 4;
  others[2].meeting = 1;
  others[3].secret.key = "another key";
  others[4].secret.job_id = "another job";
  others[5].port += 1;
  for (const RendezvousSpec& other : others) {
    EXPECT_TRUE(HostRelay::NameOf(other) != HostRelay::NameOf(spec));
  }
}

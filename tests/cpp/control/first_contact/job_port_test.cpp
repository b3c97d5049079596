// The job's port: it introduces domains in any order, also where a domain's rank 0 is elsewhere; it
// passes on that a rank leaves; it is there as long as it is shared, and not in a child of fork().
#include "collops/comm/control/first_contact/job_port.h"

#include <csignal>

#include "collops/comm/control/first_contact/rendezvous.h"
#include "control/first_contact/ranks_that_meet.h"
#include "proc.h"

namespace {

using namespace collops;
using collops::control::Connection;
using collops::control::ConnectionState;
using collops::control::JobPort;
using collops::control::JobSecret;
using collops::control::Rendezvous;
using collops::control::RendezvousSpec;
using collops::control::Row;
using loopback::At;
using loopback::Await;
using loopback::ExpectWell;
using loopback::FreePort;
using loopback::kMeetS;
using loopback::ListenAt;
using loopback::Meet;

const JobSecret kSecret = {"a job", "a key"};

RendezvousSpec SpecOf(const std::string& domain, int rank, int rank_size, int port, bool has_port) {
  RendezvousSpec spec = loopback::SpecOf(rank, rank_size, port);
  spec.domain = domain;
  spec.has_port = has_port;
  return spec;
}

double SecondsOf(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

bool Listens(int port) {
  Connection probe(At("127.0.0.1", port));
  Await([&] {
    probe.Flush();
    return probe.state() != ConnectionState::kConnecting;
  });
  return probe.alive();
}

}  // namespace

// Each process waits in one domain until the other process has begun the other domain.
TEST(DomainsMeetInAnyOrder) {
  const int port = FreePort();
  const ranks::Event first_waits;
  const ranks::Event second_waits;
  const auto both = [&](bool is_first) {
    const ranks::Event& own = is_first ? first_waits : second_waits;
    const ranks::Event& other = is_first ? second_waits : first_waits;
    std::vector<std::string> order = {"x", "y"};
    if (!is_first) std::swap(order[0], order[1]);
    std::thread early([&] {
      own.Set();
      EXPECT_EQ(Meet(SpecOf(order[0], is_first ? 0 : 1, 2, port, is_first)).message(), "");
    });
    other.Wait();
    EXPECT_EQ(Meet(SpecOf(order[1], is_first ? 0 : 1, 2, port, is_first)).message(), "");
    early.join();
  };
  const pid_t second = ranks::Start([&] { both(false); });
  const pid_t first = ranks::Start([&] { both(true); });
  ExpectWell({first, second});
}

// The process with the port has no part in this domain.
TEST(ADomainIsAPartOfTheJob) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  std::thread leader([&] { EXPECT_EQ(Meet(SpecOf("c", 0, 2, port, false)).message(), ""); });
  EXPECT_EQ(Meet(SpecOf("c", 1, 2, port, false)).message(), "");
  leader.join();
}

// Who has opened it tells the others its number, and takes part with it, or not.
TEST(APortWithAFreeNumberIsShared) {
  std::shared_ptr<JobPort> held;
  EXPECT_EQ(JobPort::OpenFree(At("127.0.0.1", 1), kSecret, &held).message(), "");
  const int port = held->address().port();
  EXPECT_EQ(held->address().Text(), Concat("127.0.0.1:", port));
  std::shared_ptr<JobPort> same;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(held->address(), kSecret, &same, &taken).message(), "");
  EXPECT_EQ(same.get(), held.get());
  same.reset();
  std::thread leader([&] { EXPECT_EQ(Meet(SpecOf("n", 0, 2, port, true)).message(), ""); });
  EXPECT_EQ(Meet(SpecOf("n", 1, 2, port, false)).message(), "");
  leader.join();
  held.reset();
  EXPECT_FALSE(Listens(port));
  EXPECT_CONTAINS(JobPort::OpenFree(At("192.0.2.1", 0), kSecret, &held).message(),
                  "this host does not have the address");
}

TEST(ThePortIsSharedAndGoesWithTheLast) {
  const int port = FreePort();
  const int threads = proc::NumThreads();
  const int descriptors = proc::NumDescriptors();
  std::shared_ptr<JobPort> first;
  std::shared_ptr<JobPort> second;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &first, &taken).message(), "");
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &second, &taken).message(), "");
  EXPECT_EQ(first.get(), second.get());
  EXPECT_EQ(proc::NumThreads(), threads + 1);
  first.reset();
  EXPECT_TRUE(Listens(port));
  second.reset();
  EXPECT_FALSE(Listens(port));
  EXPECT_EQ(proc::AwaitThreads(threads), threads);
  EXPECT_EQ(proc::NumDescriptors(), descriptors);
}

TEST(AChildForgetsThePort) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  const ranks::Event begun;  // the child has closed its copy of the socket
  const ranks::Event end;
  const pid_t child = ranks::Start([&] {
    begun.Set();
    end.Wait();
  });
  begun.Wait();
  EXPECT_TRUE(Listens(port));
  held.reset();
  EXPECT_FALSE(Listens(port));
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  end.Set();
  ExpectWell({child});
}

// Whoever waits is told, and whoever comes later.
TEST(ARankThatLeavesTellsTheOthers) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  const auto expect_left = [&](const char* domain, int rank, int leaver) {
    const double took = SecondsOf([&] {
      const Status status = Meet(SpecOf(domain, rank, 3, port, false));
      EXPECT_EQ(status.code(), ERROR_PEER_LOST);
      EXPECT_CONTAINS(status.message(), Concat("rank ", leaver, " (pid ", getpid(), " on ",
                                               control::HostName(), ", 127.0.0.1) left"));
      EXPECT_CONTAINS(status.message(), "it closed its communicator");
    });
    EXPECT_TRUE(took < check::Patience(5));
  };
  for (const int leaver : {0, 2}) {
    const char* const domain = leaver == 0 ? "e" : "f";
    std::thread early([&] { expect_left(domain, leaver == 0 ? 2 : 0, leaver); });
    Rendezvous::Create(SpecOf(domain, leaver, 3, port, false))
        ->Leave(Error(ERROR_PEER_LOST, "it closed its communicator"));
    early.join();
    expect_left(domain, 1, leaver);
  }
  // Where nobody listens, nobody is told.
  held.reset();
  EXPECT_TRUE(
      SecondsOf([&] {
        Rendezvous::Create(SpecOf("e", 1, 3, port, false))->Leave(Error(ERROR_ABORTED, "x"));
      }) < 0.9);
}

// As one does that finds no library: the port may open later, and is held for those to come.
TEST(ARankThatCannotComeWaitsUntilItIsHeard) {
  for (const int leaver : {0, 1}) {
    const int port = FreePort();
    std::thread gone([&] {
      Rendezvous::Create(SpecOf("o", leaver, 2, port, leaver == 0))
          ->Leave(Error(ERROR_UNSUPPORTED, "no library"), check::Patience(20));
    });
    usleep(500000);
    const Status status = Meet(SpecOf("o", 1 - leaver, 2, port, leaver == 1));
    EXPECT_EQ(status.code(), ERROR_UNSUPPORTED);
    EXPECT_CONTAINS(status.message(), "no library");
    gone.join();
  }
}

// Also where rank 0 of the domain is not there.
TEST(WhoWaitsAtThePortLearnsWhomItHasTurnedAway) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  const auto turn_away = [&](int rank) {
    RendezvousSpec stranger = SpecOf("p", rank, 4, port, false);
    stranger.secret.key = "another key";
    EXPECT_CONTAINS(Meet(stranger).message(), "it has another key");
  };
  turn_away(2);
  std::thread waits([&] {
    const Status status = Meet(SpecOf("p", 1, 4, port, false), check::Patience(6));
    EXPECT_EQ(status.code(), ERROR_TIMEOUT);
    for (const int rank : {2, 3}) {
      EXPECT_CONTAINS(status.message(), Concat("127.0.0.1, which says it is rank ", rank, " on ",
                                               control::HostName(), " and has another key"));
    }
  });
  usleep(1000000);
  turn_away(3);
  waits.join();
}

// As where its host had no library, and has one now: rank 0 makes the group again.
TEST(ANewProcessOfARankIsNotTheOneThatLeft) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  ExpectWell({ranks::Start([&] {
    Rendezvous::Create(SpecOf("n", 1, 2, port, false))->Leave(Error(ERROR_UNSUPPORTED, "no UCX"));
  })});
  std::thread again([&] {
    RendezvousSpec spec = SpecOf("n", 0, 2, port, false);
    spec.meeting = 1;
    EXPECT_EQ(Meet(spec).message(), "");
  });
  EXPECT_EQ(Meet(SpecOf("n", 1, 2, port, false)).message(), "");
  again.join();
}

// All have made the domain once before, without meeting.
TEST(AnEarlierMeetingSaysNothingOfALaterOne) {
  const int port = FreePort();
  std::shared_ptr<JobPort> held;
  bool taken = false;
  EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
  for (const int rank : {0, 1}) {
    Rendezvous::Create(SpecOf("g", rank, 2, port, false))->Leave(Error(ERROR_PEER_LOST, "closed"));
  }
  const auto again = [&](int rank) {
    RendezvousSpec spec = SpecOf("g", rank, 2, port, false);
    spec.meeting = 1;
    EXPECT_EQ(Meet(spec).message(), "");
  };
  std::thread leader([&] { again(0); });
  again(1);
  leader.join();
}

// One fails after all have come, as where its host has no memory left.
TEST(AFailureAfterTheIntroductionReachesAll) {
  for (const int bad : {0, 1}) {
    const int port = FreePort();
    std::vector<pid_t> pids;
    for (int rank = 0; rank < 3; ++rank) {
      pids.push_back(ranks::Start([port, rank, bad] {
        const Status own = rank == bad ? Error(ERROR_OUT_OF_HOST_MEMORY, "no memory left") : Ok();
        const Status status = Meet(SpecOf("h", rank, 3, port, rank == 0), kMeetS, own);
        EXPECT_EQ(status.code(), ERROR_OUT_OF_HOST_MEMORY);
        EXPECT_CONTAINS(status.message(), "no memory left");
        if (rank != bad && bad == 1) EXPECT_CONTAINS(status.message(), "rank 1 left first contact");
      }));
    }
    ExpectWell(pids);
  }
}

TEST(ARankKilledAfterTheIntroductionIsReported) {
  for (const int doomed : {0, 2}) {
    const int port = FreePort();
    const ranks::Event met;
    const pid_t victim = ranks::Start([&] {
      std::vector<Row> rows;
      const auto rendezvous = Rendezvous::Create(SpecOf("i", doomed, 3, port, doomed == 0));
      EXPECT_EQ(rendezvous->Complete(Deadline::After(kMeetS), &rows).message(), "");
      met.Set();
      for (;;) pause();
    });
    std::vector<pid_t> others;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == doomed) continue;
      others.push_back(ranks::Start([port, rank, doomed] {
        const Status status = Meet(SpecOf("i", rank, 3, port, rank == 0));
        EXPECT_EQ(status.code(), ERROR_PEER_LOST);
        EXPECT_CONTAINS(status.message(), Concat("rank ", doomed));
        EXPECT_CONTAINS(status.message(), "ended during first contact");
      }));
    }
    met.Wait();
    loopback::Kill(victim);
    ExpectWell(others);
  }
}

TEST(ATakenPortIsReportedWithItsOwner) {
  const int port = FreePort();
  const auto taken_by = [&] {
    const Status status = Meet(SpecOf("j", 0, 2, port, true));
    EXPECT_EQ(status.code(), ERROR_RT_FAIL);
    EXPECT_CONTAINS(status.message(),
                    Concat("cannot listen at 127.0.0.1:", port, ": another process has port ", port,
                           ": end it, or set COLLOPS_PORT to a free port, the same in all ranks. ",
                           "Its owner: 127.0.0.1:", port));
    return status.message();
  };
  const auto taken_by_job = [&](const JobSecret& secret) {
    std::shared_ptr<JobPort> held;
    bool taken = false;
    EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), secret, &held, &taken).message(), "");
    return taken_by();
  };
  EXPECT_CONTAINS(taken_by_job({"another job", "a key"}), "it belongs to another job");
  EXPECT_CONTAINS(taken_by_job({"a job", "another key"}),
                  "it has another key: set COLLOPS_JOB_KEY");
  const auto stranger = ListenAt("127.0.0.1", port);
  EXPECT_CONTAINS(taken_by(), " accepted the connection, but has sent nothing");
}

// Another process of the same job has the port, for a while.
TEST(APortThatIsTakenByItsOwnJobServesAll) {
  const int port = FreePort();
  const ranks::Event there;
  const pid_t holder = ranks::Start([&] {
    std::shared_ptr<JobPort> held;
    bool taken = false;
    EXPECT_EQ(JobPort::Share(At("127.0.0.1", port), kSecret, &held, &taken).message(), "");
    there.Set();
    for (;;) pause();
  });
  there.Wait();
  const pid_t first = ranks::Start([&] {
    EXPECT_EQ(Meet(SpecOf("k", 0, 2, port, true)).message(), "");
    there.Set();
    EXPECT_EQ(Meet(SpecOf("l", 0, 2, port, true)).message(), "");
  });
  EXPECT_EQ(Meet(SpecOf("k", 1, 2, port, false)).message(), "");
  there.Wait();
  loopback::Kill(holder);
  EXPECT_EQ(Meet(SpecOf("l", 1, 2, port, false)).message(), "");
  ExpectWell({first});
}

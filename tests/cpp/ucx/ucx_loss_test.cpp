// A peer that is killed or stopped, and what was under way with it.
#include <signal.h>

#include <cstring>

#include "ucx/pairs.h"

namespace {

using collops::ERROR_PEER_LOST;
using collops::ERROR_TIMEOUT;
using namespace ucx_tests;

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kVictim = 1;

uint64_t TagOf(int source) {
  return Tag{1, source, 0}.Of(TagKind::kData);
}

Deadline Limit() {
  return Deadline::After(kLimitS);
}

// The others use each other's connections as before.
void ExchangeAmongTheOthers(const Entry& e) {
  const int peer = 2 - e.me;
  std::vector<std::byte> out = DataOf(e.me, peer, kMiB);
  std::vector<std::byte> in(kMiB);
  Request requests[2];
  ASSERT_TRUE(e.worker.Receive(peer, TagOf(peer), in.data(), kMiB, &requests[0]).ok());
  ASSERT_TRUE(e.worker.Send(peer, TagOf(e.me), out.data(), kMiB, &requests[1]).ok());
  const Watch watch = {{}, [&] { return e.worker.IsLost(peer) ? e.worker.Loss() : collops::Ok(); }};
  EXPECT_EQ(Wait(e.worker, "the others", requests, 2, watch, Limit()).message(), "");
  EXPECT_TRUE(in == DataOf(peer, e.me, kMiB));
  Settle(e, {peer});
}

// A message from every rank to every other one, after which a loss is noticed.
void SayHello(const Entry& e) {
  const auto count = static_cast<size_t>(2 * e.mesh.size());
  const auto requests = std::make_unique<Request[]>(count);
  std::vector<char> bytes(count);
  for (int peer = 0; peer < e.mesh.size(); ++peer) {
    if (peer == e.me) continue;
    const auto at = static_cast<size_t>(peer);
    ASSERT_TRUE(e.worker.Receive(peer, TagOf(peer), &bytes[at], 1, &requests[2 * at]).ok());
    ASSERT_TRUE(e.worker.Send(peer, TagOf(e.me), "h", 1, &requests[2 * at + 1]).ok());
  }
  EXPECT_EQ(Wait(e.worker, "hello", requests.get(), count, {}, Limit()).message(), "");
  Settle(e);
}

// Dies in a wait.
void BeVictim(const Entry& e) {
  const auto begun = [&] { return false; };
  const Watch watch = {{{e.mesh.At(e.me, 0), POLLIN, 0}}, [&] {
                         pollfd update = {e.mesh.At(e.me, 0), POLLIN, 0};
                         if (poll(&update, 1, 0) == 1) raise(SIGKILL);
                         return collops::Ok();
                       }};
  (void)e.worker.Until("the end", begun, watch, Limit());
}

void ExpectLoss(const Status& status) {
  EXPECT_EQ(status.code(), ERROR_PEER_LOST);
  EXPECT_CONTAINS(status.message(), "the connection to peer 1 has ended: ");
}

}  // namespace

TEST(AKilledPeerEndsAReceiveThatWaitsForIt) {
  RunConnected(
      3,
      [](const Entry& e) {
        SayHello(e);
        if (e.me == kVictim) return BeVictim(e);
        Request request;
        std::vector<std::byte> memory(kMiB, std::byte{0xee});
        ASSERT_TRUE(e.worker.Receive(kVictim, TagOf(kVictim), memory.data(), kMiB, &request).ok());
        if (e.me == 0) e.mesh.Say(0, kVictim, "die");
        const auto begin = Deadline::Clock::now();
        ExpectLoss(Wait(e.worker, "data", &request, 1, {}, Limit()));
        const std::chrono::duration<double> took = Deadline::Clock::now() - begin;
        EXPECT_TRUE(took.count() < check::Patience(5));
        // The receive is not complete by that; it is ended here, and the others go on.
        EXPECT_TRUE(request.pending());
        e.worker.End(&request);
        EXPECT_FALSE(request.pending());
        EXPECT_TRUE(memory[0] == std::byte{0xee});
        Request later;
        ExpectLoss(e.worker.Send(kVictim, 1, "x", 1, &later));
        ExchangeAmongTheOthers(e);
      },
      kVictim);
}

// The victim is in the middle of a message: one that it sends, or one that it receives.
void DieInAMessage(bool victim_sends, size_t bytes) {
  RunConnected(
      3,
      [=](const Entry& e) {
        SayHello(e);
        std::vector<std::byte> memory(bytes);
        Request request;
        const auto transfer = [&](int peer, bool sends) {
          return sends ? e.worker.Send(peer, TagOf(e.me), memory.data(), bytes, &request)
                       : e.worker.Receive(peer, TagOf(peer), memory.data(), bytes, &request);
        };
        if (e.me == kVictim) {
          ASSERT_TRUE(transfer(0, victim_sends).ok());
          for (int i = 0; i < 40; ++i) e.worker.Progress();
          raise(SIGKILL);
        }
        if (e.me == 0) {
          ASSERT_TRUE(transfer(kVictim, !victim_sends).ok());
          const auto begin = Deadline::Clock::now();
          const Status status = Wait(e.worker, "data", &request, 1, {}, Limit());
          ExpectLoss(status);
          e.worker.End(&request);
          EXPECT_TRUE(Deadline::Clock::now() - begin <
                      std::chrono::duration<double>(check::Patience(5)));
          EXPECT_FALSE(request.pending());
        }
        e.mesh.Say(e.me, 2 - e.me, "done");
        EXPECT_EQ(e.mesh.Hear(e.me, 2 - e.me), "done");
        e.worker.Close();
      },
      kVictim);
}

TEST(APeerThatIsKilledWhileItSendsIsReportedAndTheReceiveEnds) {
  for (const size_t bytes : {4 * kMiB, 20 * kMiB, 64 * kMiB}) DieInAMessage(true, bytes);
}

TEST(AStoppedPeerIsNoLoss) {
  RunConnected(2, [](const Entry& e) {
    SayHello(e);
    if (e.me == kVictim) {
      e.mesh.Say(1, 0, std::to_string(getpid()));
      EXPECT_EQ(e.mesh.Hear(1, 0), "go on");
    } else {
      const pid_t pid = std::stoi(e.mesh.Hear(0, 1));
      ASSERT_EQ(kill(pid, SIGSTOP), 0);
      char byte = 0;
      Request request;
      ASSERT_TRUE(e.worker.Receive(1, TagOf(1), &byte, 1, &request).ok());
      const Status status = Wait(e.worker, "data", &request, 1, {}, Deadline::After(1.0));
      EXPECT_EQ(status.code(), ERROR_TIMEOUT);
      EXPECT_EQ(e.worker.Loss().message(), "");
      ASSERT_EQ(kill(pid, SIGCONT), 0);
      e.mesh.Say(0, 1, "go on");
      e.worker.End(&request);
    }
    Settle(e);
  });
}

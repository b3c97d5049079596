// Messages between processes through UCX: sizes, order, both directions at once, close.
#include <cstring>
#include <thread>

#include "proc.h"
#include "ucx/pairs.h"

namespace {

using collops::ERROR_ABORTED;
using collops::ERROR_RT_FAIL;
using collops::ERROR_TIMEOUT;
using namespace ucx_tests;

constexpr size_t kMiB = size_t{1} << 20;

uint64_t TagOf(int source, uint64_t sequence = 1) {
  return Tag{sequence, source, 0}.Of(TagKind::kData);
}

Deadline Limit() {
  return Deadline::After(kLimitS);
}

// Sends to every peer and receives from every peer at once, and compares every byte.
void ExchangeWithAll(const Entry& e, size_t bytes, uint64_t sequence) {
  const int size = e.mesh.size();
  std::vector<std::vector<std::byte>> out;
  std::vector<std::vector<std::byte>> in;
  const auto count = static_cast<size_t>(2 * size);
  const auto requests = std::make_unique<Request[]>(count);
  for (int peer = 0; peer < size; ++peer) {
    out.push_back(DataOf(e.me, peer, bytes));
    in.emplace_back(bytes, std::byte{0xee});
  }
  e.mesh.Meet(e.me);
  for (int peer = 0; peer < size; ++peer) {
    if (peer == e.me) continue;
    const auto at = static_cast<size_t>(peer);
    EXPECT_EQ(e.worker.Receive(peer, TagOf(peer, sequence), in[at].data(), bytes, &requests[2 * at])
                  .message(),
              "");
    EXPECT_EQ(
        e.worker.Send(peer, TagOf(e.me, sequence), out[at].data(), bytes, &requests[2 * at + 1])
            .message(),
        "");
  }
  EXPECT_EQ(Wait(e.worker, "the exchange", requests.get(), count, {}, Limit()).message(), "");
  for (int peer = 0; peer < size; ++peer) {
    if (peer == e.me) continue;
    const auto at = static_cast<size_t>(peer);
    EXPECT_TRUE(in[at] == DataOf(peer, e.me, bytes));
    EXPECT_EQ(requests[2 * at].bytes(), bytes);
  }
}

// As ranks close: everything is handed over, all meet, then each closes.
void CloseTogether(const Entry& e) {
  Settle(e);
  e.worker.Close();
}

}  // namespace

// A rank that knows where all others are connects to those that it sends to.
TEST(TheFirstMessageConnects) {
  RunConnected(2, [](const Entry& e) {
    std::unique_ptr<Worker> worker;
    EXPECT_EQ(Worker::Create(3, &worker).message(), "");
    ASSERT_TRUE(worker != nullptr);
    const int peer = 1 - e.me;
    e.mesh.Say(e.me, peer, worker->address());
    worker->Know(peer, e.mesh.Hear(e.me, peer));
    EXPECT_EQ(worker->num_connected(), 0);
    Request request;
    const Status unknown = worker->Send(2, 1, "", 0, &request);
    EXPECT_CONTAINS(unknown.message(), "peer 2 is not connected");
    ExchangeWithAll({e.mesh, e.me, *worker}, 1000, 1);
    EXPECT_EQ(worker->num_connected(), 1);
    e.mesh.Meet(e.me);
    CloseTogether(e);
  });
}

// Also where the system refuses the connection at once.
TEST(APeerThatHasEndedBeforeTheFirstMessageIsLost) {
  RunConnected(2, [](const Entry& e) {
    setenv("UCX_TLS", "tcp", 1);  // as between hosts
    std::unique_ptr<Worker> worker;
    ASSERT_TRUE(Worker::Create(2, &worker).ok());
    const int peer = 1 - e.me;
    e.mesh.Say(e.me, peer, worker->address());
    worker->Know(peer, e.mesh.Hear(e.me, peer));
    if (e.me == 1) worker.reset();
    e.mesh.Meet(e.me);
    if (e.me == 0) {
      Request request;
      const Status sent = worker->Send(1, TagOf(0), "", 0, &request);
      EXPECT_TRUE(sent.ok() || sent.code() == ERROR_RT_FAIL);
      const Watch watch = {{}, [] { return collops::Ok(); }};
      const auto lost = [&] { return worker->IsLost(1); };
      EXPECT_EQ(worker->Until("the loss", lost, watch, Limit()).message(), "");
      const collops::Status loss = worker->LossOf(1);
      EXPECT_EQ(loss.code(), collops::ERROR_PEER_LOST);
      // A peer that lives is unreachable, too, if the networks are chosen wrongly.
      const auto says = [&](const char* what) {
        return loss.message().find(what) != std::string::npos;
      };
      EXPECT_EQ(says("unreachable"), says("; UCX_NET_DEVICES and UCX_TLS choose the network"));
    }
    e.mesh.Meet(e.me);
    CloseTogether(e);
  });
}

TEST(AMessageThatIsTooLongIsAnError) {
  RunConnected(2, [](const Entry& e) {
    const int peer = 1 - e.me;
    const std::vector<std::byte> sent = DataOf(e.me, peer, 100);
    std::vector<std::byte> received(100, std::byte{0xee});
    Request out;
    Request in;
    ASSERT_TRUE(e.worker.Send(peer, TagOf(e.me), sent.data(), 100, &out).ok());
    Status status = e.worker.Receive(peer, TagOf(peer), received.data(), 10, &in);
    if (status.ok()) status = Wait(e.worker, "a receive", &in, 1, {}, Limit());
    EXPECT_CONTAINS(status.message(), "a message from peer " + std::to_string(peer) + " failed: ");
    EXPECT_CONTAINS(status.message(), "(-9)");
    EXPECT_TRUE(received[10] == std::byte{0xee});
    ASSERT_TRUE(Wait(e.worker, "a send", &out, 1, {}, Limit()).ok());
    CloseTogether(e);
  });
}

TEST(AWaitEndsAtItsDeadlineAndItsReceiveCanBeEnded) {
  RunConnected(2, [](const Entry& e) {
    const int peer = 1 - e.me;
    std::vector<std::byte> memory(kMiB, std::byte{0xee});
    {
      Request request;
      ASSERT_TRUE(e.worker.Receive(peer, TagOf(peer, 5), memory.data(), kMiB, &request).ok());
      const auto begin = Deadline::Clock::now();
      const Status status = Wait(e.worker, "a receive", &request, 1, {}, Deadline::After(0.3));
      const std::chrono::duration<double> took = Deadline::Clock::now() - begin;
      EXPECT_EQ(status.code(), ERROR_TIMEOUT);
      EXPECT_EQ(status.message(), "backend ucx: a receive: not done after 0.3 s");
      EXPECT_TRUE(took.count() >= 0.3 && took.count() < check::Patience(5));
      e.worker.End(&request);
      EXPECT_FALSE(request.pending());
      EXPECT_EQ(e.worker.StatusOf(request).code(), ERROR_ABORTED);
    }
    // What comes later with the same tag goes to the next receive and not to that memory.
    ExchangeWithAll(e, 1000, 5);
    EXPECT_TRUE(memory == std::vector<std::byte>(kMiB, std::byte{0xee}));
    CloseTogether(e);
  });
}

TEST(CloseLeavesNoDescriptorAndNoThread) {
  Mesh mesh(2);
  std::vector<pid_t> pids;
  for (int me = 0; me < 2; ++me) {
    pids.push_back(ranks::Start([&] {
      mesh.Keep(me);
      if (!IsThere()) return void(std::puts("skipped: no UCX is installed"));
      std::thread([] {}).join();  // with the first one, TSan starts a thread that stays
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until it is not listed
      for (int round = 0; round < 3; ++round) {
        const int descriptors = proc::NumDescriptors();
        const int threads = proc::NumThreads();
        const std::unique_ptr<Worker> worker = Connected(mesh, me);
        EXPECT_TRUE(proc::NumDescriptors() > descriptors);
        const Entry entry = {mesh, me, *worker};
        ExchangeWithAll(entry, 4 * kMiB, 1);
        mesh.Meet(me);  // both have everything
        if (round == 0) CloseTogether(entry);
        if (round == 1) worker->Close();  // at once, whatever the peer does
        Request request;
        char byte = 0;
        if (round == 2) {
          // One that is never used, and a receive that is pending.
          EXPECT_TRUE(worker->Receive(1 - me, TagOf(1 - me, 9), &byte, 1, &request).ok());
          worker->Close();
          EXPECT_FALSE(request.pending());
        }
        EXPECT_EQ(proc::NumDescriptors(), descriptors);
        EXPECT_EQ(proc::AwaitThreads(threads), threads);
        const Status after = worker->Send(1 - me, 1, &byte, 1, &request);
        EXPECT_EQ(after.code(), ERROR_ABORTED);
        EXPECT_CONTAINS(after.message(), "the connections are closed");
        worker->Close();
        mesh.Meet(me);
      }
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(AChildOfForkLeavesTheConnectionsOfItsParentAlone) {
  RunConnected(2, [](const Entry& e) {
    ExchangeWithAll(e, 1000, 1);
    char byte = 0;
    Request pending;
    const int peer = 1 - e.me;
    ASSERT_TRUE(e.worker.Receive(peer, TagOf(peer, 3), &byte, 1, &pending).ok());
    const ranks::Ended ended = ranks::Wait(ranks::Start([&] {
      Request request;
      const Status status = e.worker.Send(peer, TagOf(e.me, 2), &byte, 1, &request);
      EXPECT_EQ(status.code(), ERROR_RT_FAIL);
      EXPECT_CONTAINS(status.message(), "belong to the parent process");
      EXPECT_FALSE(e.worker.Progress());
      e.worker.End(&pending);
      e.worker.Close();
      // Its own connections are another matter.
      std::unique_ptr<Worker> own;
      EXPECT_EQ(Worker::Create(1, &own).message(), "");
    }));
    EXPECT_EQ(ended.code, 0);
    EXPECT_TRUE(pending.pending());
    ExchangeWithAll(e, 4 * kMiB, 2);
    CloseTogether(e);
    EXPECT_FALSE(pending.pending());
  });
}

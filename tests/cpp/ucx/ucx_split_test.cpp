// Communicator::Split of ranks on several hosts, here processes that name different hosts.
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>

#include "collops/comm/backends/ucx/communicator.h"
#include "collops/comm/control/first_contact/hosts_meeting.h"
#include "control/first_contact/loopback.h"
#include "ranks.h"
#include "ucx/installed.h"

namespace {

using namespace collops;
using collops::control::Control;

const double kTimeoutS = check::Patience(20);

using HostOf = std::vector<int>;
using Body = std::function<void(int rank, Communicator& communicator)>;

// This process as a rank of a group on those hosts, at a port that was free.
std::shared_ptr<Communicator> Join(int rank, const HostOf& host_of, int port) {
  setenv("COLLOPS_SERVER_ID", std::to_string(host_of[static_cast<size_t>(rank)]).c_str(), 1);
  setenv("COLLOPS_PORT", std::to_string(port).c_str(), 1);
  CommunicatorSpec spec;
  spec.backend = "ucx";
  spec.rank = rank;
  spec.rank_size = static_cast<int>(host_of.size());
  spec.timeout_s = kTimeoutS;
  JobIdentity job;
  EXPECT_EQ(FindJobIdentity(&job).message(), "");
  std::unique_ptr<control::Meeting> meeting;
  const collops::JobPlace place = {"127.0.0.1", 0, rank == 0, ""};
  const Status made = control::HostsMeeting::Create(
      spec, job, place, control::Board::Bytes(spec.rank_size), &meeting);
  EXPECT_EQ(made.message(), "");
  return std::make_shared<ucx::UcxCommunicator>(
      std::make_shared<Control>(spec, std::move(meeting)));
}

// Each rank runs `body`; all are expected to end well, except `victim`, which may end in any way.
void OnHosts(const HostOf& host_of, const Body& body, int victim = -1) {
  setenv("COLLOPS_JOB_ID", ranks::FreshJob().id.c_str(), 1);
  const int port = loopback::ListenAt("127.0.0.1").address().port();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    pids.push_back(ranks::Start([&] {
      if (!ucx_tests::IsThere()) return void(std::puts("skipped: no UCX is installed"));
      body(rank, *Join(rank, host_of, port));
    }));
  }
  for (size_t rank = 0; rank < pids.size(); ++rank) {
    const ranks::Ended ended = ranks::Wait(pids[rank], 3 * kTimeoutS);
    if (static_cast<int>(rank) == victim) continue;
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

// Gathers one number of each rank over `communicator`.
std::vector<int64_t> Gather(Communicator& communicator, int64_t number) {
  std::vector<int64_t> counts(static_cast<size_t>(communicator.size()), 1);
  std::vector<int64_t> displs(counts.size());
  std::iota(displs.begin(), displs.end(), 0);
  std::vector<int64_t> output(counts.size(), -1);
  const Agreement agreement("AllGatherV");
  AllGatherVCall call;
  call.agreement = &agreement;
  call.dtype = DType::kInt64;
  call.x = &number;
  call.output = output.data();
  call.recv_counts = counts.data();
  call.rdispls = displs.data();
  EXPECT_EQ(communicator.AllGatherV(call).message(), "");
  return output;
}

// A number to the next rank and from the previous one.
int64_t Shift(Communicator& communicator, int64_t number) {
  int64_t received = -1;
  Transfer list[2];
  for (Transfer& transfer : list) {
    transfer.dtype = DType::kInt64;
    transfer.elements = 1;
    transfer.bytes = sizeof(number);
  }
  const int size = communicator.size();
  list[0].way = Transfer::kSend;
  list[0].peer = (communicator.rank() + 1) % size;
  list[0].data = &number;
  list[1].way = Transfer::kRecv;
  list[1].peer = (communicator.rank() + size - 1) % size;
  list[1].data = &received;
  EXPECT_EQ(communicator.Messages("exchange", list, 2).message(), "");
  return received;
}

using Numbers = std::vector<int64_t>;

}  // namespace

TEST(SubgroupsOnSeveralHostsAreNumberedByKeyAndSplitAgain) {
  OnHosts({0, 1, 1, 0, 0}, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(rank % 2, -rank, &part).message(), "");
    ASSERT_TRUE(part != nullptr);
    EXPECT_EQ(Gather(*part, rank), rank % 2 == 0 ? (Numbers{4, 2, 0}) : (Numbers{3, 1}));
    EXPECT_EQ(Gather(communicator, rank), (Numbers{0, 1, 2, 3, 4}));
    const int64_t before = rank % 2 == 0 ? (rank + 2) % 6 : 4 - rank;
    EXPECT_EQ(Shift(*part, rank), before);
    // Of the even ranks: 4 alone, and 2 with 0.
    std::shared_ptr<Communicator> again;
    EXPECT_EQ(part->Split(rank == 4 ? 1 : 0, rank, &again).message(), "");
    if (again == nullptr) return;
    part->Close("it needs the inner one alone");
    const Numbers want = rank == 4 ? Numbers{4} : rank % 2 == 0 ? Numbers{0, 2} : Numbers{1, 3};
    EXPECT_EQ(Gather(*again, rank), want);
    EXPECT_EQ(Shift(*again, rank), want.front() == rank ? want.back() : want.front());
    EXPECT_EQ(Gather(communicator, rank), (Numbers{0, 1, 2, 3, 4}));
  });
}

TEST(ARankMayStayOutAndASubgroupOfOneHostIsOneOfSharedMemory) {
  OnHosts({0, 0, 1, 1}, [](int rank, Communicator& communicator) {
    std::shared_ptr<Communicator> part;
    // 0 and 2 together, 1 alone in none, 3 by itself.
    const int colors[] = {5, -1, 5, 6};
    EXPECT_EQ(communicator.Split(colors[rank], 0, &part).message(), "");
    EXPECT_EQ(part == nullptr, rank == 1);
    if (part == nullptr) return;
    EXPECT_EQ(Gather(*part, rank), rank == 3 ? (Numbers{3}) : (Numbers{0, 2}));
    std::shared_ptr<Communicator> host;
    EXPECT_EQ(part->Split(rank, 0, &host).message(), "");
    EXPECT_TRUE(host->WindowPeers().all());
  });
}

TEST(ARankThatEndsAfterTheSplitIsReportedInTheSubgroup) {
  for (const bool kept : {true, false}) {
    void* const shared = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto* const gathered = new (shared) std::atomic<int>(0);
    OnHosts(
        {0, 0, 1, 1},
        [kept, gathered](int rank, Communicator& communicator) {
          std::shared_ptr<Communicator> part;
          const Status made =
              kept ? communicator.KeptSplit("rows", rank % 2, {rank % 2 + 2, rank % 2}, &part)
                   : communicator.Split(rank % 2, -rank, &part);
          EXPECT_EQ(made.message(), "");
          EXPECT_EQ(Gather(*part, rank), rank % 2 == 0 ? (Numbers{2, 0}) : (Numbers{3, 1}));
          // The end of a kept subgroup would end the other one's first call.
          ++*gathered;
          if (rank == 3) {
            loopback::Await([&] { return gathered->load() == 4; });
            raise(SIGKILL);
          }
          const auto start = std::chrono::steady_clock::now();
          if (rank == 1) {
            const Status lost = part->Barrier();
            EXPECT_EQ(lost.code(), ERROR_PEER_LOST);
            EXPECT_CONTAINS(lost.message(), "rank 0 (pid ");
            // A kept subgroup lives and fails with its parent.
            EXPECT_EQ(communicator.failed(), kept);
          } else if (kept) {
            Status status;
            while (status.ok()) {
              // A call that waits looks at its parent; the others have no time to.
              if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
              status = part->Barrier();
            }
            EXPECT_EQ(status.code(), ERROR_PEER_LOST);
          } else {
            EXPECT_EQ(Gather(*part, rank), (Numbers{2, 0}));
          }
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
          EXPECT_TRUE(took.count() < check::Patience(8));
        },
        3);
  }
}

// No descriptor is left for a listener: this rank refuses the split, and the next one is good.
TEST(ARankThatCannotListenRefusesTheSplit) {
  OnHosts({0, 1}, [](int rank, Communicator& communicator) {
    // UBSan opens a pipe when it first meets a class: it meets those of a split and of a text now.
    std::shared_ptr<Communicator> part;
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    EXPECT_FALSE(collops::Concat("a text ", rank).empty());
    part.reset();
    EXPECT_EQ(communicator.Barrier().message(), "");
    rlimit limit = {};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit none = {3, limit.rlim_max};
    if (rank == 1) setrlimit(RLIMIT_NOFILE, &none);
    const Status refused = communicator.Split(0, 0, &part);
    EXPECT_FALSE(refused.ok());
    EXPECT_TRUE(part == nullptr);
    if (rank == 0) EXPECT_EQ(refused.code(), ERROR_RANK_MISMATCH);
    if (rank == 0) EXPECT_CONTAINS(refused.message(), "rank 1 (pid ");
    setrlimit(RLIMIT_NOFILE, &limit);
    EXPECT_EQ(communicator.Split(0, 0, &part).message(), "");
    EXPECT_EQ(Gather(*part, rank), (Numbers{0, 1}));
  });
}

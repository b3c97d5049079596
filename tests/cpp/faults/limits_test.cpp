// Limits of a process that first contact runs into: its own clear error, and the others are told.
#include <sys/resource.h>

#include <fstream>

#include "collops/core/process/interrupt.h"
#include "faults/doom.h"
#include "ranks.h"
#include "sanitized.h"

namespace {

using collops::Communicator;
using collops::Status;

constexpr int kSize = 3;

// Rank `limited` gets a limit when all hellos have been sent: it gets `code`, and every rank
// `text`, soon.
void MeetWithALimit(int limited, void (*limit)(), collops::ErrorCode code,
                    const std::string& text) {
  const collops::JobIdentity job = ranks::FreshJob();
  const ranks::Event listens, came, met;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kSize; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      if (rank > 0) listens.Wait();
      const auto comm = ranks::Make(job, rank, kSize);
      if (rank == 0) {
        listens.Set(kSize - 1);
        came.Wait(kSize - 1);
      } else {
        came.Set();
      }
      if (rank == limited) limit();
      const int64_t begun_ns = doom::NowNs();
      Status status = comm->Connect();
      if (status.ok() && rank != limited) status = comm->Barrier();
      EXPECT_FALSE(status.ok());
      if (rank == limited) EXPECT_EQ(status.code(), code);
      EXPECT_CONTAINS(status.message(), text);
      EXPECT_TRUE(doom::NowNs() - begun_ns < int64_t{3000000000});
      if (rank == limited) {
        met.Wait(kSize - 1);  // its end must not be what tells the others
      } else {
        met.Set();
      }
    }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

void LimitFiles() {
  const rlimit limit = {1 << 20, 1 << 20};
  EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// What is used now, and a little more.
void LimitAddressSpace() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{1} << 20);
  const rlimit limit = {bytes, bytes};
  EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}

}  // namespace

// The limit counts for shared memory too, and the kernel sends SIGXFSZ, which ends a process.
TEST(ASegmentBeyondTheLimitOfFilesIsAnErrorOnAllRanks) {
  MeetWithALimit(0, LimitFiles, collops::ERROR_OUT_OF_HOST_MEMORY, "of shared memory: File too");
}

TEST(ALimitOfFilesLeavesTheHandlerAlone) {
  static int handled = 0;
  const pid_t pid = ranks::Start([] {
    signal(SIGXFSZ, [](int) { ++handled; });
    LimitFiles();
    const auto comm = ranks::Make(ranks::FreshJob(), 0, 1);
    EXPECT_EQ(comm->Connect().code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(handled, 0);
    raise(SIGXFSZ);  // one that is not ours arrives
    EXPECT_EQ(handled, 1);
  });
  EXPECT_EQ(ranks::Wait(pid).code, 0);
}

TEST(ASegmentThatCannotBeMappedIsAnErrorOnAllRanks) {
  if (kSanitized) return;  // needs terabytes of address space itself
  for (const int rank : {0, 1, 2}) {
    MeetWithALimit(rank, LimitAddressSpace, collops::ERROR_OUT_OF_HOST_MEMORY,
                   "raise this process's limit of address space");
  }
}

TEST(ASecondThreadGetsAnErrorInFirstContact) {
  const auto comm = ranks::Make(ranks::FreshJob(), 0, 2);
  static std::atomic<bool> waits{false};
  collops::InterruptCheckSlot().store([] {
    waits = true;
    return false;
  });
  std::thread second([&] {
    while (!waits) usleep(1000);
    const Status status = comm->Barrier();
    EXPECT_EQ(status.code(), collops::ERROR_INVALID_PARAM);
    EXPECT_CONTAINS(status.message(), "another thread");
    comm->Abort("the test is over");  // a time-out could end the wait before this thread has looked
  });
  EXPECT_EQ(comm->Connect().code(), collops::ERROR_ABORTED);
  second.join();
  collops::InterruptCheckSlot().store(nullptr);
}

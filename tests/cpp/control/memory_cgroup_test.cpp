// Shared memory under the limit of a real memory cgroup, if one can be made.
#include <string>
#include <vector>

#include "collops/comm/control/segment.h"
#include "control/own_cgroup.h"
#include "ranks.h"

namespace {

using collops::Status;
using collops::control::Segment;

constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace

// 800 MB under a limit of 300 MB, and what fits beside the memory that is used already.
TEST(ASegmentBeyondTheLimitOfACgroupIsAnError) {
  const OwnCgroup cgroup(300 * kMiB);
  if (!cgroup.valid()) return;
  const ranks::Ended ended = ranks::Wait(ranks::Start([&] {
    cgroup.Enter();
    Segment first, second, third;
    const Status status = Segment::Create(800 * kMiB, &first);
    EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_CONTAINS(status.message(), "whose limit is 314572800 bytes");
    EXPECT_EQ(Segment::Create(200 * kMiB, &first).message(), "");
    EXPECT_EQ(Segment::Create(200 * kMiB, &second).code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    EXPECT_EQ(Segment::Create(40 * kMiB, &third).message(), "");
  }));
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
}

// Each segment alone would fit: at least one gets an error, and no process is killed.
TEST(SegmentsThatAreMadeAtOnceDoNotExceedTheLimitOfACgroup) {
  const OwnCgroup cgroup(300 * kMiB);
  if (!cgroup.valid()) return;
  std::vector<pid_t> pids;
  for (int i = 0; i < 3; ++i) {
    pids.push_back(ranks::Start([&] {
      cgroup.Enter();
      Segment segment;
      const Status status = Segment::Create(200 * kMiB, &segment);
      if (!status.ok()) EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
    }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

// A communicator's memory counts, too; its other ranks get the reason.
TEST(ACommunicatorBeyondTheLimitOfACgroupIsAnErrorOnAllRanks) {
  const OwnCgroup cgroup(300 * kMiB);
  if (!cgroup.valid()) return;
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 2; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      if (rank == 0) cgroup.Enter();
      collops::CommunicatorSpec spec;
      spec.backend = "shm";
      spec.rank = rank;
      spec.rank_size = 2;
      spec.timeout_s = check::Patience(20);
      const auto control = std::make_shared<collops::control::Control>(
          spec, job, collops::shm::SegmentLayout::Bytes(2) + 800 * kMiB);
      collops::shm::ShmCommunicator communicator(control);
      const Status status = communicator.Connect();
      EXPECT_EQ(status.code(), collops::ERROR_OUT_OF_HOST_MEMORY);
      EXPECT_CONTAINS(status.message(), "whose limit is 314572800 bytes");
    }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

// Shared memory under the limit of a real memory cgroup, if one can be made.
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "comm/control/available_memory.h"
#include "comm/control/segment.h"
#include "ranks.h"

namespace {

using collops::Status;
using collops::control::MemoryCgroup;
using collops::control::Segment;

constexpr int64_t kMiB = int64_t{1} << 20;

// A cgroup of this test below its own; if none can be made, it is not valid and says why.
class OwnCgroup {
 public:
  explicit OwnCgroup(int64_t limit) {
    const std::vector<MemoryCgroup> cgroups = collops::control::FindMemoryCgroups();
    if (cgroups.empty()) {
      Skip("there is no memory cgroup");
      return;
    }
    folder_ = cgroups.front().folder + "/collops-test-" + std::to_string(getpid());
    if (mkdir(folder_.c_str(), 0755) != 0) {
      folder_.clear();
      Skip("none can be made below " + cgroups.front().folder);
      return;
    }
    const bool second = cgroups.front().version == 2;
    std::ofstream file(folder_ + (second ? "/memory.max" : "/memory.limit_in_bytes"));
    file << limit << std::flush;
    valid_ = file.good();
    if (!valid_) Skip("it takes no limit");
  }
  ~OwnCgroup() {
    if (!folder_.empty()) rmdir(folder_.c_str());
  }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;

  bool valid() const { return valid_; }
  void Enter() const {
    std::ofstream file(folder_ + "/cgroup.procs");
    file << getpid() << std::flush;
    EXPECT_TRUE(file.good());
  }

 private:
  void Skip(const std::string& why) {
    std::printf("skipped: a real cgroup is needed, and %s\n", why.c_str());
  }

  std::string folder_;
  bool valid_ = false;
};

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
      spec.timeout_s = 20;
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

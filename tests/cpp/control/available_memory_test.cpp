// How much memory the machine and its cgroups have left, from files that the tests write.
#include "collops/comm/control/segment.h"

#include <string>

#include "core/imaginary_machine.h"

namespace {

using collops::control::AvailableMemory;
using collops::control::FindAvailableMemory;

constexpr int64_t kMiB = int64_t{1} << 20;

class Machine : public ImaginaryMachine {
 public:
  Machine() { Write("meminfo", "MemTotal: 9437184 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n"); }

  void Second(const std::string& folder, const std::string& limit, int64_t used,
              int64_t cache) const {
    const std::string at = "mount" + folder + "/memory.";
    Write(at + "max", limit + "\n");
    Write(at + "current", std::to_string(used * kMiB) + "\n");
    Write(at + "stat", "anon 5\nfile 999999999999\nshmem 7\ninactive_file " +
                           std::to_string(cache * kMiB / 2) + "\nactive_file " +
                           std::to_string(cache * kMiB / 2) + "\n");
  }

  AvailableMemory Find() const {
    return FindAvailableMemory({At("meminfo"), {At("cgroup"), At("mountinfo")}});
  }
};

std::string Bytes(int64_t mebibytes) {
  return std::to_string(mebibytes * kMiB);
}

// What is left of `limit` MiB if `used` MiB cannot be dropped.
int64_t Left(int64_t limit, int64_t used) {
  return (limit - used) * kMiB - limit * kMiB / 64;
}

}  // namespace

TEST(WithoutCgroupsTheMachineLimits) {
  const Machine machine;
  EXPECT_EQ(machine.Find().bytes, int64_t{8} << 30);
  EXPECT_EQ(machine.Find().where, "on this machine");
  EXPECT_EQ(FindAvailableMemory({"/no/such", {"/no/such", "/no/such"}}).bytes, INT64_MAX);
}

TEST(ALimitOfTheSecondVersionCountsWhatIsUsedButNotFileCache) {
  const Machine machine;
  machine.Write("cgroup", "0::/job/step\n");
  machine.Mounts("/", "cgroup2 cgroup2 rw");
  machine.Second("/job/step", Bytes(300), 120, 20);
  machine.Second("/job", "max", 4000, 0);
  const AvailableMemory found = machine.Find();
  EXPECT_EQ(found.bytes, Left(300, 100));
  EXPECT_EQ(found.where, "in the memory cgroup " + machine.At("mount/job/step") +
                             ", whose limit is " + Bytes(300) + " bytes");
}

TEST(TheTightestCgroupOnTheWayUpLimits) {
  const Machine machine;
  machine.Write("cgroup", "0::/a/b/c\n");
  machine.Mounts("/", "cgroup2 cgroup2 rw");
  machine.Second("/a/b/c", Bytes(900), 10, 0);
  machine.Second("/a", Bytes(500), 400, 50);
  machine.Second("", Bytes(800), 100, 0);
  EXPECT_EQ(machine.Find().bytes, Left(500, 350));
  machine.Second("/a", Bytes(500), 700, 0);  // above its limit
  EXPECT_EQ(machine.Find().bytes, 0);
  machine.Write("mount/a/memory.max", "no number\n");
  EXPECT_EQ(machine.Find().bytes, Left(800, 100));
}

TEST(ALimitOfTheFirstVersion) {
  const Machine machine;
  machine.Write("cgroup", "9:name=systemd:/x\n4:cpu,memory:/job\n0::/job\n");
  machine.Mounts("/", "cgroup cgroup rw,cpu,memory");
  machine.Write("mount/memory.limit_in_bytes", "9223372036854771712\n");
  machine.Write("mount/memory.usage_in_bytes", Bytes(5000));
  machine.Write("mount/job/memory.limit_in_bytes", Bytes(300));
  machine.Write("mount/job/memory.usage_in_bytes", Bytes(250));
  machine.Write("mount/job/memory.stat", "cache 1\ninactive_file 1\ntotal_inactive_file " +
                                             Bytes(60) + "\ntotal_active_file " + Bytes(40));
  EXPECT_EQ(machine.Find().bytes, Left(300, 150));
}

TEST(AContainerSeesItsOwnPartOfTheHierarchy) {
  const Machine machine;
  machine.Second("/inner", Bytes(300), 0, 0);
  machine.Second("", Bytes(400), 0, 0);
  machine.Write("cgroup", "0::/docker/f00/inner\n");
  machine.Mounts("/docker/f00", "cgroup2 cgroup2 rw");
  EXPECT_EQ(machine.Find().bytes, Left(300, 0));
  // A cgroup outside of the mounted part counts as the mounted root.
  for (const char* const path : {"/docker/f00", "/docker/f00barred", "/../other", "/"}) {
    machine.Write("cgroup", std::string("0::") + path + "\n");
    EXPECT_EQ(machine.Find().bytes, Left(400, 0));
  }
}

// How many cores a process may use: its affinity mask, and the CPU quotas of its cgroups, from
// files that the tests write.
#include "collops/core/process/cgroups.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "core/imaginary_machine.h"

namespace {

using collops::FindUsableCores;

int CoresOfMask() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

// A mask of one core leaves no room for a smaller quota, so the tests of quotas compare with this.
int AtMost(int quota) {
  return std::min(quota, CoresOfMask());
}

class Machine : public ImaginaryMachine {
 public:
  collops::UsableCores Find() const { return FindUsableCores({At("cgroup"), At("mountinfo")}); }
};

}  // namespace

TEST(WithoutAQuotaTheAffinityMaskDecides) {
  EXPECT_EQ(FindUsableCores({"/no/such", "/no/such"}).count, CoresOfMask());
  const Machine machine;
  machine.Write("cgroup", "0::/job\n");
  machine.Mounts("/", "cgroup2 cgroup2 rw");
  for (const char* const text : {"max 100000\n", "99900000 100000\n", "nonsense\n", "\n"}) {
    machine.Write("mount/job/cpu.max", text);
    EXPECT_EQ(machine.Find().count, CoresOfMask());
    EXPECT_EQ(machine.Find().cgroup, "");
  }
}

TEST(TheSmallestQuotaOnThePathCountsRoundedUp) {
  const Machine machine;
  machine.Write("cgroup", "0::/a/b/c\n");
  machine.Mounts("/", "cgroup2 cgroup2 rw");
  machine.Write("mount/a/b/c/cpu.max", "max 100000\n");
  machine.Write("mount/a/b/cpu.max", "350000 100000\n");
  machine.Write("mount/cpu.max", "900000 100000\n");
  EXPECT_EQ(machine.Find().count, AtMost(4));
  machine.Write("mount/a/cpu.max", "60000 50000\n");  // 1.2 cores
  EXPECT_EQ(machine.Find().count, AtMost(2));
  machine.Write("mount/a/b/c/cpu.max", "1000 100000\n");  // never less than one
  EXPECT_EQ(machine.Find().count, 1);
  EXPECT_EQ(machine.Find().cgroup, CoresOfMask() > 1 ? machine.At("mount/a/b/c") : "");
}

TEST(AQuotaOfTheFirstVersion) {
  const Machine machine;
  machine.Write("cgroup", "9:memory:/elsewhere\n4:cpu,cpuacct:/job\n0::/job\n");
  machine.Mounts("/", "cgroup cgroup rw,cpu,cpuacct");
  machine.Write("mount/cpu.cfs_quota_us", "-1\n");
  machine.Write("mount/cpu.cfs_period_us", "100000\n");
  machine.Write("mount/job/cpu.cfs_quota_us", "100001\n");
  machine.Write("mount/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(machine.Find().count, AtMost(2));
  machine.Write("mount/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(machine.Find().count, 1);
}

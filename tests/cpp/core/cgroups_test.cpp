// How many cores a process may use: its affinity mask, and the CPU quotas of its cgroups, from
// files that the tests write.
#include "collops/core/process/cgroups.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"

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

// The files of an imaginary machine; removed at the end.
class Machine {
 public:
  Machine() {
    char name[] = "/tmp/collops-cores-XXXXXX";
    EXPECT_TRUE(mkdtemp(name) != nullptr);
    root_ = name;
  }
  ~Machine() { std::filesystem::remove_all(root_); }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void Mounts(const std::string& root, const std::string& kind) const {
    Write("mountinfo", "35 31 0:32 " + root + " " + folder("") + " rw shared:9 - " + kind + "\n");
  }
  std::string folder(const std::string& below) const { return (root_ / "mount").string() + below; }
  collops::UsableCores Find() const {
    return FindUsableCores({(root_ / "cgroup").string(), (root_ / "mountinfo").string()});
  }

 private:
  std::filesystem::path root_;
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
  EXPECT_EQ(machine.Find().cgroup, CoresOfMask() > 1 ? machine.folder("/a/b/c") : "");
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

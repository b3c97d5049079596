// A memory cgroup of a test, below its own, where one can be made.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "check.h"
#include "collops/core/process/cgroups.h"

// If none can be made, it is not valid and says why.
class OwnCgroup {
 public:
  explicit OwnCgroup(int64_t limit) {
    const std::vector<collops::Cgroup> cgroups = collops::FindCgroups("memory");
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
  // A process that writes its pid into this file enters.
  std::string entrance() const { return folder_ + "/cgroup.procs"; }
  void Enter() const {
    std::ofstream file(entrance());
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

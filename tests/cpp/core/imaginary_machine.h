// The files of an imaginary machine, as the system has them in /proc and /sys; removed at the end.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "check.h"

class ImaginaryMachine {
 public:
  ImaginaryMachine() {
    char name[] = "/tmp/collops-machine-XXXXXX";
    EXPECT_TRUE(mkdtemp(name) != nullptr);
    root_ = name;
  }
  ~ImaginaryMachine() { std::filesystem::remove_all(root_); }
  ImaginaryMachine(const ImaginaryMachine&) = delete;
  ImaginaryMachine& operator=(const ImaginaryMachine&) = delete;

  std::string At(const std::string& path) const { return (root_ / path).string(); }
  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  // A hierarchy of cgroups is mounted: its part below `root`, at mount/.
  void Mounts(const std::string& root, const std::string& kind) const {
    Write("mountinfo", "31 23 0:28 / /proc rw - proc proc rw\n35 31 0:32 " + root + " " +
                           At("mount") + " rw,relatime shared:9 - " + kind + "\n");
  }

 private:
  std::filesystem::path root_;
};

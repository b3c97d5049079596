// Finds a UCX for the tests: what COLLOPS_UCX_LIBRARY or the system offers, or PyPI's wheel, whose
// folder COLLOPS_TEST_UCX_FOLDER names; by hand, that of the checkout's environment.
#ifndef COLLOPS_TESTS_CPP_UCX_INSTALLED_H_
#define COLLOPS_TESTS_CPP_UCX_INSTALLED_H_

#include <glob.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "collops/comm/backends/ucx/engine/library.h"

namespace ucx_tests {

// The program's own folder and those above it.
inline std::vector<std::string> FoldersAbove() {
  char path[4096] = {};
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0) return {};
  std::vector<std::string> folders;
  std::string folder = path;
  for (size_t slash; (slash = folder.rfind('/')) != std::string::npos && slash > 0;) {
    folder.resize(slash);
    folders.push_back(folder);
  }
  return folders;
}

// ".../libucx/lib"; empty if there is none.
inline std::string WheelFolder() {
  const char* const named = std::getenv("COLLOPS_TEST_UCX_FOLDER");
  if (named != nullptr && *named != 0) return named;
  for (const std::string& above : FoldersAbove()) {
    glob_t found = {};
    std::string folder;
    const std::string pattern = above + "/.venv/lib/python3*/site-packages/libucx/lib";
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) folder = found.gl_pathv[0];
    globfree(&found);
    if (!folder.empty()) return folder;
  }
  return "";
}

// In a child process, before UCX is opened: whether there is one. The parent stays without UCX, so
// that every child opens its own.
inline bool IsThere() {
  collops::ucx::SetWheelFolder(WheelFolder());
  const collops::ucx::Library* library = nullptr;
  return collops::ucx::Load(&library).ok();
}

}  // namespace ucx_tests

#endif  // COLLOPS_TESTS_CPP_UCX_INSTALLED_H_

#include "collops/core/process/cgroups.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace collops {
namespace {

struct Mount {
  std::string root;  // the part of the hierarchy that is mounted
  std::string point;
};

bool ListHolds(const std::string& list, const std::string& entry) {
  return ("," + list + ",").find("," + entry + ",") != std::string::npos;
}

// In mountinfo a space is written as a backslash and three octal digits.
std::string Unescaped(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// A line: id parent device root point options... - type source options.
bool FindMount(const std::string& mountinfo, int version, const std::string& controller,
               Mount* mount) {
  std::ifstream file(mountinfo);
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream first(line.substr(0, dash));
    std::istringstream second(line.substr(dash + 3));
    std::string skipped, root, point, type, options;
    first >> skipped >> skipped >> skipped >> root >> point;
    second >> type >> skipped >> options;
    if (version == 2 ? type != "cgroup2" : type != "cgroup" || !ListHolds(options, controller)) {
      continue;
    }
    *mount = {Unescaped(root), Unescaped(point)};
    return true;
  }
  return false;
}

// The folder of cgroup `path` below the mount; the mount itself if the path lies elsewhere.
std::string FolderBelow(const Mount& mount, const std::string& path) {
  if (path.find("/..") != std::string::npos) return "";
  const std::string root = mount.root == "/" ? "" : mount.root;
  const bool inside = path.compare(0, root.size(), root) == 0 &&
                      (path.size() == root.size() || path[root.size()] == '/');
  std::string below = inside ? path.substr(root.size()) : "";
  while (!below.empty() && below.back() == '/') below.pop_back();
  return below;
}

// The cores in the affinity mask; the call fails if the mask is too small.
int CoresOfMask() {
  for (size_t size = CPU_SETSIZE; size <= (1u << 20); size *= 2) {
    cpu_set_t* const set = CPU_ALLOC(size);
    if (set == nullptr) return 1;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

// The microseconds of CPU time that a cgroup has in each period; false if it has no quota.
bool ReadQuota(const Cgroup& cgroup, int64_t* quota, int64_t* period) {
  if (cgroup.version == 2) {
    std::ifstream file(cgroup.folder + "/cpu.max");  // "max 100000" has no quota
    file >> *quota >> *period;
    return !file.fail() && *quota > 0 && *period > 0;
  }
  std::ifstream quotas(cgroup.folder + "/cpu.cfs_quota_us");  // -1: no quota
  std::ifstream periods(cgroup.folder + "/cpu.cfs_period_us");
  quotas >> *quota;
  periods >> *period;
  return !quotas.fail() && !periods.fail() && *quota > 0 && *period > 0;
}

}  // namespace

std::vector<Cgroup> FindCgroups(const std::string& controller, const CgroupFiles& files) {
  std::vector<Cgroup> found;
  std::ifstream file(files.cgroup);
  // A line: number:controllers:path. Version 2 has number 0 and names no controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const int version = line.compare(0, first, "0") == 0 && controllers.empty() ? 2 : 1;
    Mount mount;
    if (version == 1 && !ListHolds(controllers, controller)) continue;
    if (!FindMount(files.mountinfo, version, controller, &mount)) continue;
    std::string below = FolderBelow(mount, line.substr(second + 1));
    for (; !below.empty(); below.resize(below.rfind('/'))) {
      found.push_back({version, mount.point + below});
    }
    found.push_back({version, mount.point});
  }
  return found;
}

UsableCores FindUsableCores(const CgroupFiles& files) {
  UsableCores cores{CoresOfMask(), ""};
  for (const Cgroup& cgroup : FindCgroups("cpu", files)) {
    int64_t quota = 0;
    int64_t period = 0;
    if (!ReadQuota(cgroup, &quota, &period)) continue;
    const int64_t rounded_up = quota / period + (quota % period != 0 ? 1 : 0);
    if (rounded_up < cores.count) cores = {static_cast<int>(rounded_up), cgroup.folder};
  }
  return cores;
}

}  // namespace collops

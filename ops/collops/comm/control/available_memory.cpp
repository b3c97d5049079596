#include "collops/comm/control/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include "collops/core/status.h"

namespace collops::control {
namespace {

// False for a text that is no number, such as "max".
bool ParseBytes(const std::string& text, int64_t* bytes) {
  const char* const end = text.data() + text.size();
  int64_t number = 0;
  const std::from_chars_result result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < 0) return false;
  *bytes = number;
  return true;
}

bool ReadBytes(const std::string& path, int64_t* bytes) {
  std::ifstream file(path);
  std::string text;
  return static_cast<bool>(file >> text) && ParseBytes(text, bytes);
}

// The sum of the named numbers in a file of lines "name number".
int64_t SumOf(const std::string& path, const std::vector<std::string>& names) {
  std::ifstream file(path);
  std::string name;
  std::string number;
  int64_t sum = 0;
  while (file >> name >> number) {
    int64_t bytes = 0;
    const bool wanted = std::find(names.begin(), names.end(), name) != names.end();
    if (wanted && ParseBytes(number, &bytes)) sum += bytes;
    file.ignore(256, '\n');
  }
  return sum;
}

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
bool FindMount(const std::string& mountinfo, int version, Mount* mount) {
  std::ifstream file(mountinfo);
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream first(line.substr(0, dash));
    std::istringstream second(line.substr(dash + 3));
    std::string skipped, root, point, type, options;
    first >> skipped >> skipped >> skipped >> root >> point;
    second >> type >> skipped >> options;
    if (version == 2 ? type != "cgroup2" : type != "cgroup" || !ListHolds(options, "memory")) {
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

// The bytes left in one cgroup; false if it has no limit.
bool LeftIn(const MemoryCgroup& cgroup, int64_t* limit, int64_t* left) {
  const bool second = cgroup.version == 2;
  const std::string folder = cgroup.folder + "/memory.";
  if (!ReadBytes(folder + (second ? "max" : "limit_in_bytes"), limit)) return false;
  int64_t used = 0;
  if (!ReadBytes(folder + (second ? "current" : "usage_in_bytes"), &used)) used = 0;
  const int64_t cache =
      second ? SumOf(folder + "stat", {"inactive_file", "active_file", "slab_reclaimable"})
             : SumOf(folder + "stat", {"total_inactive_file", "total_active_file"});
  // The kernel's own page data count in the cgroup too, and its counters lag a little.
  const int64_t room = *limit / 64;
  *left = std::max<int64_t>(*limit - room - std::max<int64_t>(used - cache, 0), 0);
  return true;
}

}  // namespace

std::vector<MemoryCgroup> FindMemoryCgroups(const MemoryFiles& files) {
  std::vector<MemoryCgroup> found;
  std::ifstream file(files.cgroup);
  // A line: number:controllers:path. Version 2 has number 0 and names no controllers.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const int version = line.compare(0, first, "0") == 0 && controllers.empty() ? 2 : 1;
    Mount mount;
    if (version == 1 && !ListHolds(controllers, "memory")) continue;
    if (!FindMount(files.mountinfo, version, &mount)) continue;
    std::string below = FolderBelow(mount, line.substr(second + 1));
    for (; !below.empty(); below.resize(below.rfind('/'))) {
      found.push_back({version, mount.point + below});
    }
    found.push_back({version, mount.point});
  }
  return found;
}

AvailableMemory FindAvailableMemory(const MemoryFiles& files) {
  AvailableMemory available{INT64_MAX, "on this machine"};
  std::ifstream info(files.meminfo);
  for (std::string line; std::getline(info, line);) {
    std::istringstream fields(line);
    std::string name, kibibytes;
    int64_t number = 0;
    fields >> name >> kibibytes;
    if (name != "MemAvailable:" || !ParseBytes(kibibytes, &number)) continue;
    available.bytes = number * 1024;
  }
  for (const MemoryCgroup& cgroup : FindMemoryCgroups(files)) {
    int64_t limit = 0;
    int64_t left = 0;
    if (!LeftIn(cgroup, &limit, &left) || left >= available.bytes) continue;
    available = {
        left, Concat("in the memory cgroup ", cgroup.folder, ", whose limit is ", limit, " bytes")};
  }
  return available;
}

}  // namespace collops::control

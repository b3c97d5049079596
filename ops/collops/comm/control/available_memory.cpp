#include "collops/comm/control/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <vector>

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

// The bytes left in one cgroup; false if it has no limit.
bool LeftIn(const Cgroup& cgroup, int64_t* limit, int64_t* left) {
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
  for (const Cgroup& cgroup : FindCgroups("memory", files.cgroups)) {
    int64_t limit = 0;
    int64_t left = 0;
    if (!LeftIn(cgroup, &limit, &left) || left >= available.bytes) continue;
    available = {
        left, Concat("in the memory cgroup ", cgroup.folder, ", whose limit is ", limit, " bytes")};
  }
  return available;
}

}  // namespace collops::control

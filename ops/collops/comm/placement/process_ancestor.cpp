#include "collops/comm/placement/process_ancestor.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace collops {
namespace {

std::string ReadProcFile(pid_t pid, const char* name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool HasVariable(const std::string& environment, const std::string& variable) {
  const std::string prefix = variable + "=";
  for (size_t begin = 0; begin < environment.size();) {
    if (environment.compare(begin, prefix.size(), prefix) == 0) return true;
    const size_t end = environment.find('\0', begin);
    if (end == std::string::npos) return false;
    begin = end + 1;
  }
  return false;
}

struct ProcessStat {
  std::string name;
  pid_t parent = 0;
  uint64_t start_ticks = 0;
};

// Reads /proc/PID/stat. Its second field, the name in parentheses, may contain spaces and
// parentheses, so the rest is counted from the last parenthesis.
bool ReadStat(pid_t pid, ProcessStat* stat) {
  const std::string text = ReadProcFile(pid, "stat");
  const size_t name_begin = text.find('(');
  const size_t name_end = text.rfind(')');
  if (name_begin >= name_end || name_end == std::string::npos) return false;
  stat->name = text.substr(name_begin + 1, name_end - name_begin - 1);
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  fields >> skipped >> stat->parent;  // fields 3 and 4
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat->start_ticks;
  return !fields.fail();
}

}  // namespace

bool NearestAncestor(const std::vector<std::string>& names, const char* variable,
                     ProcessId* ancestor) {
  ProcessStat stat;
  if (!ReadStat(getpid(), &stat)) return false;
  while (stat.parent > 1) {
    const pid_t pid = stat.parent;
    if (!ReadStat(pid, &stat)) return false;
    if (std::find(names.begin(), names.end(), stat.name) != names.end() ||
        !HasVariable(ReadProcFile(pid, "environ"), variable)) {
      *ancestor = {pid, stat.start_ticks};
      return true;
    }
  }
  return false;
}

}  // namespace collops

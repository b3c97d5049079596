#include "comm/process_ancestor.h"

#include <unistd.h>

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

// Reads the fields of /proc/PID/stat. The second one, the name in parentheses, may hold spaces and
// parentheses itself, so the rest is counted from the last parenthesis.
bool ReadStat(pid_t pid, pid_t* parent, uint64_t* start_ticks) {
  const std::string stat = ReadProcFile(pid, "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  fields >> skipped >> *parent;  // fields 3 and 4
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> *start_ticks;
  return !fields.fail();
}

}  // namespace

bool NearestAncestorWithout(const char* variable, ProcessId* ancestor) {
  pid_t parent = 0;
  uint64_t start_ticks = 0;
  if (!ReadStat(getpid(), &parent, &start_ticks)) return false;
  while (parent > 1) {
    const pid_t pid = parent;
    if (!ReadStat(pid, &parent, &start_ticks)) return false;
    if (!HasVariable(ReadProcFile(pid, "environ"), variable)) {
      *ancestor = {pid, start_ticks};
      return true;
    }
  }
  return false;
}

}  // namespace collops

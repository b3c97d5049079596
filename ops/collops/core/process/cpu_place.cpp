#include "collops/core/process/cpu_place.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

namespace collops {

CpuPlace CpuPlace::Here() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (syscall(SYS_getcpu, &cpu, &node, nullptr) != 0) return {};
  return {static_cast<int>(cpu), static_cast<int>(node)};
}

void RunOn(int cpu, const std::function<void()>& work) {
  constexpr size_t kMostCpus = 1 << 15;
  if (cpu < 0 || static_cast<size_t>(cpu) >= kMostCpus) return work();
  const auto on_core = [&] {
    std::vector<cpu_set_t> set(kMostCpus / CPU_SETSIZE);
    CPU_SET_S(static_cast<size_t>(cpu), set.size() * sizeof(cpu_set_t), set.data());
    // An error where this process may not use the core: then it runs elsewhere.
    static_cast<void>(sched_setaffinity(0, set.size() * sizeof(cpu_set_t), set.data()));
    // Else "numactl --membind" of this process would count for the other rank, too.
    constexpr int kDefault = 0;
    static_cast<void>(syscall(SYS_set_mempolicy, kDefault, nullptr, 0));
    work();
  };
  try {
    std::thread(on_core).join();
  } catch (const std::system_error&) {
    work();
  }
}

}  // namespace collops

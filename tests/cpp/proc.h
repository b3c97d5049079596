// What this process holds, as the system lists it: its descriptors and its threads.
#ifndef COLLOPS_TESTS_CPP_PROC_H_
#define COLLOPS_TESTS_CPP_PROC_H_

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "sanitized.h"

namespace proc {

inline int NumEntries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

inline int NumDescriptors() {
  return NumEntries("/proc/self/fd");
}

inline int NumThreads() {
  return NumEntries("/proc/self/task");
}

// NumThreads() once it is `want`, or in the end as it is: the system lists a thread a little longer
// than it can be joined.
inline int AwaitThreads(int want) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(10));
  while (NumThreads() != want && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return NumThreads();
}

}  // namespace proc

#endif  // COLLOPS_TESTS_CPP_PROC_H_

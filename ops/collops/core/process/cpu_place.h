#pragma once

#include <functional>

namespace collops {

// A core, and the NUMA node that it belongs to; -1: not known.
struct CpuPlace {
  int cpu = -1;
  int node = -1;

  // Where this thread runs now.
  static CpuPlace Here();
};

// Runs `work` in a thread on that core, if this thread may use it: memory that it touches first
// lies on the core's node. Else, or if no thread can be made, in this one. `work` must not throw.
void RunOn(int cpu, const std::function<void()>& work);

}  // namespace collops

// Where the memory of a rank lies: what it writes for the others is on the NUMA node of its core,
// whichever rank has made the segment. On a machine of one node this says little: what is asked of
// Linux is in segment_test.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <set>

#include "ranks.h"

namespace {

// The nodes of the pages of [begin, end) that this process has touched; empty if it may not ask.
std::set<int> NodesOf(const std::byte* begin, const std::byte* end) {
  std::set<int> nodes;
  for (const std::byte* page = begin; page < end; page += collops::control::kPageBytes) {
    const auto* touched = reinterpret_cast<const volatile char*>(page);
    static_cast<void>(*touched);
    const void* address = page;
    int node = -1;
    if (syscall(SYS_move_pages, 0, 1UL, &address, nullptr, &node, 0) != 0) return {};
    nodes.insert(node);
  }
  return nodes;
}

// Core `index` of those that this process may use.
int CoreOf(int index) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  EXPECT_EQ(sched_getaffinity(0, sizeof(usable), &usable), 0);
  std::vector<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) cores.push_back(cpu);
  }
  // From both ends: other nodes are there.
  const size_t at = static_cast<size_t>(index / 2) % cores.size();
  return index % 2 == 0 ? cores[at] : cores[cores.size() - 1 - at];
}

void Pin(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

}  // namespace

TEST(WhatARankWritesLiesOnItsNode) {
  constexpr int kRanks = 4;
  const collops::JobIdentity job = ranks::FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kRanks; ++rank) {
    pids.push_back(ranks::Start([&] {
      Pin(CoreOf(rank));
      const auto comm = ranks::Make(job, rank, kRanks);
      EXPECT_EQ(comm->Barrier().message(), "");
      const collops::shm::SegmentLayout layout(collops::ControlOf(*comm).backend_memory(), kRanks);
      const auto* const records =
          reinterpret_cast<const std::byte*>(&layout.call_record(rank, uint64_t{0}));
      const std::byte* const stage = layout.stage(rank);
      std::shared_ptr<collops::Window> window;
      EXPECT_EQ(comm->AllocateWindow(1 << 20, &window).message(), "");
      const auto* const data = static_cast<const std::byte*>(window->data());
      const std::pair<const std::byte*, const std::byte*> all[] = {
          {records, stage}, {stage, stage + collops::shm::kStageBytes}, {data, data + (1 << 20)}};
      const int node = collops::CpuPlace::Here().node;
      for (const auto& [begin, end] : all) {
        for (const int found : NodesOf(begin, end)) EXPECT_EQ(found, node);
      }
      EXPECT_EQ(comm->Barrier().message(), "");
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
}

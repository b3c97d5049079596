// How the conformance suite runs: on a backend, with ranks that are processes or threads.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "collops/comm/backends/backend_table.h"
#include "ranks.h"

namespace conformance {

constexpr int kMaxTestRanks = 8;

struct Ground {
  const char* name;
  const char* backend;
  collops::CommMode mode;
};

// A case that every backend must pass. Each size and variant runs in a group of its own.
struct Case {
  const char* name;
  std::vector<int> sizes;
  int variants;
  double timeout_s;
  void (*body)(int rank, int variant, collops::Communicator& comm);
};

// Memory that all ranks of a run share, zeroed at its beginning.
struct Common {
  std::atomic<int> counters[64];
  char told[kMaxTestRanks][2048];
};

inline Common& Shared() {
  static void* const memory =
      mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return *static_cast<Common*>(memory);
}

// Whether the cases start their calls and wait for them, instead of calling directly.
inline bool& CallsAreStarted() {
  static bool started = false;
  return started;
}

// Makes a call. Every other started call is left to the queue's thread.
template <typename Body>
collops::Status Made(collops::Communicator& comm, const Body& body) {
  if (!CallsAreStarted()) return body();
  static std::atomic<int> number{0};
  collops::Communicator::Handle handle;
  COLLOPS_RETURN_IF_ERROR(comm.Start("a started call", body, &handle));
  const bool leave_alone = number++ % 2 == 0;
  while (leave_alone && !comm.Test(handle)) std::this_thread::yield();
  return comm.Wait(handle);
}

// Waits, outside any call, until a counter has reached `value`.
inline void AwaitCount(const std::atomic<int>& counter, int value) {
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(check::Patience(30));
  while (counter < value && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(counter >= value);
}

// Notes the error text of this rank; after the run all noted texts must be equal.
inline void Tell(int rank, const std::string& text) {
  std::strncpy(Shared().told[rank], text.c_str(), sizeof(Common::told[0]) - 1);
}

inline void ExpectOneText(int size) {
  std::string first;
  for (int r = 0; r < size; ++r) {
    const std::string told = Shared().told[r];
    if (first.empty()) first = told;
    if (!told.empty()) EXPECT_EQ(told, first);
  }
}

inline void RunRank(const collops::CommunicatorSpec& spec, const Case& test, int variant) {
  std::shared_ptr<collops::Communicator> comm;
  EXPECT_EQ(collops::FindBackend(spec.backend)->create(spec, &comm).message(), "");
  if (comm != nullptr) test.body(spec.rank, variant, *comm);
}

inline void RunProcesses(collops::CommunicatorSpec spec, const Case& test, int variant) {
  std::vector<pid_t> pids;
  for (spec.rank = 0; spec.rank < spec.rank_size; ++spec.rank) {
    pids.push_back(ranks::Start([&] { RunRank(spec, test, variant); }));
  }
  for (const pid_t pid : pids) {
    const ranks::Ended ended = ranks::Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

inline void RunThreads(collops::CommunicatorSpec spec, const Case& test, int variant) {
  std::vector<std::thread> threads;
  for (spec.rank = 0; spec.rank < spec.rank_size; ++spec.rank) {
    threads.emplace_back([spec, &test, variant] { RunRank(spec, test, variant); });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void RunCase(const Ground& ground, const Case& test, int size, int variant) {
  std::memset(static_cast<void*>(&Shared()), 0, sizeof(Common));
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  collops::CommunicatorSpec spec;
  spec.backend = ground.backend;
  spec.comm_domain = "conformance " + job.id;  // threads meet without a job
  spec.rank_size = size;
  spec.comm_mode = ground.mode;
  spec.timeout_s = test.timeout_s;
  const auto run = ground.mode == collops::COMM_MULTI_THREAD ? RunThreads : RunProcesses;
  run(spec, test, variant);
  ExpectOneText(size);
}

inline void RunCases(const Ground& ground, const std::vector<Case>& cases) {
  for (const Case& test : cases) {
    for (const int size : test.sizes) {
      for (int variant = 0; variant < test.variants; ++variant) {
        const int before = check::Failures();
        RunCase(ground, test, size, variant);
        if (check::Failures() == before) continue;
        std::printf("  in: %s, %s, %d ranks, variant %d\n", ground.name, test.name, size, variant);
      }
    }
  }
}

}  // namespace conformance

// 500 communicators, one after the other: descriptors, mappings, memory and threads are in the end
// what they were. Without COLLOPS_ALL_FAULTS=1 there are 150.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "faults/ways.h"
#include "proc.h"
#include "ranks.h"
#include "sanitized.h"

namespace {

using collops::Communicator;

int NumCycles() {
  return std::getenv("COLLOPS_ALL_FAULTS") != nullptr ? 500 : 150;
}
// By then libc and the library hold what they keep for good.
constexpr int kWarm = 60;
constexpr int kSize = 2;

struct Held {
  int descriptors;
  int threads;
  int mappings;
  int64_t resident_kib;
};

int NumMappings() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  int number = 0;
  while (std::getline(maps, line)) ++number;
  return number;
}

int64_t ResidentKib() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "VmRSS:") continue;
  int64_t kib = 0;
  status >> kib;
  return kib;
}

Held Now(int threads) {
  return {proc::NumDescriptors(), proc::AwaitThreads(threads), NumMappings(), ResidentKib()};
}

// Everything that makes something: a chunked call, windows, messages with a ring, a subgroup, a
// thread for started calls.
void UseAll(int cycle, Communicator& comm) {
  const auto& ways = ways::All();
  const ways::Way& way = ways[static_cast<size_t>(cycle) % ways.size()];
  std::shared_ptr<collops::Window> x, output;
  EXPECT_EQ(comm.AllocateWindow(way.x_elements(kSize) * 4, &x).message(), "");
  EXPECT_EQ(comm.AllocateWindow(way.output_elements(kSize) * 4, &output).message(), "");
  auto* const from = static_cast<int32_t*>(x->data());
  auto* const to = static_cast<int32_t*>(output->data());
  way.Fill(comm.rank(), kSize, from);
  EXPECT_EQ(way.Call(comm, from, to).message(), "");
  EXPECT_EQ(way.Wrong(comm.rank(), kSize, to), 0);
  Communicator::Handle handle;
  EXPECT_EQ(comm.Start("Barrier", [&comm] { return comm.Barrier(); }, &handle).message(), "");
  EXPECT_EQ(comm.Wait(handle).message(), "");
  if (cycle % 5 != 0) return;
  std::shared_ptr<Communicator> part;
  EXPECT_EQ(comm.Split(0, 0, &part).message(), "");
  EXPECT_EQ(part->Barrier().message(), "");
  part->Close("it is through");
}

}  // namespace

TEST(CommunicatorsThatWereClosedLeaveNothing) {
  const collops::JobIdentity job = ranks::FreshJob();
  setenv("COLLOPS_JOB_ID", job.id.c_str(), 1);
  std::vector<pid_t> pids;
  for (int rank = 0; rank < kSize; ++rank) {
    pids.push_back(ranks::Start([&, rank] {
      std::thread([] {}).join();  // with the first one a sanitizer begins one of its own
      const int threads = proc::NumThreads();
      Held before{};
      for (int cycle = 0; cycle < NumCycles(); ++cycle) {
        if (cycle == kWarm) before = Now(threads);
        const auto comm = ranks::Make(job, rank, kSize);
        if (cycle % 3 == 0) UseAll(cycle / 3, *comm);
        EXPECT_EQ(comm->Barrier().message(), "");
        comm->Close("it is through");
      }
      const Held after = Now(threads);
      EXPECT_EQ(after.descriptors, before.descriptors);
      EXPECT_EQ(after.threads, before.threads);
      // malloc may take or give back an arena's part; a sanitizer keeps what was freed.
      if (!kSanitized) {
        EXPECT_TRUE(std::abs(after.mappings - before.mappings) <= 2);
        EXPECT_TRUE(after.resident_kib - before.resident_kib < 2048);
      }
      std::printf(
          "rank %d: after %d and %d: %d and %d descriptors, %d and %d threads, %d and %d "
          "mappings, %lld and %lld KiB\n",
          rank, kWarm, NumCycles(), before.descriptors, after.descriptors, before.threads,
          after.threads, before.mappings, after.mappings,
          static_cast<long long>(before.resident_kib), static_cast<long long>(after.resident_kib));
    }));
  }
  for (const pid_t pid : pids) EXPECT_EQ(ranks::Wait(pid).code, 0);
  unsetenv("COLLOPS_JOB_ID");
}

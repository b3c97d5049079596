#include "driver/grid.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "collops/kernels/cuda/bodies/memory.h"

namespace collops_sim {
namespace {

using Clock = std::chrono::steady_clock;

struct WaitedTooLong {};

// A kernel that runs.
struct Run {
  Context* context;
  int64_t threads;
  Clock::time_point begin = Clock::now();
  std::atomic<bool> waits{false};
  std::atomic<bool> is_late{false};
};

thread_local Run* run_here = nullptr;

// Once a kernel has waited it counts as waiting until it ends: what it waits for next, nobody
// knows.
void OnPause() {
  Run* const run = run_here;
  if (run == nullptr) return;
  if (!run->waits.exchange(true)) {
    ++run->context->waiting;
    run->context->waiting_threads += run->threads;
  }
  const std::chrono::duration<double> waited = Clock::now() - run->begin;
  if (waited.count() < TimeoutS() && run->context->error == 0) return;
  run->is_late = true;
  throw WaitedTooLong();
}

uint32_t DrawBlocksAtOnce(const Grid& grid) {
  const uint32_t most = std::min<uint32_t>(grid.blocks, kMostBlocksAtOnce);
  thread_local std::minstd_rand random(std::random_device{}());
  return 1 + static_cast<uint32_t>(random() % most);
}

}  // namespace

Result RunGrid(const Kernel& kernel, const void* args, const Grid& grid, Context* context) {
  if (context->error != 0) return Result::kSuccess;
  if (const int planned = PlannedFailure(std::string("run.") + kernel.name)) {
    return static_cast<Result>(planned);
  }
  collops::cuda::on_pause = OnPause;
  Run run{context, int64_t{grid.blocks} * grid.threads};
  std::atomic<uint32_t> next{0};
  const auto work = [&] {
    run_here = &run;
    try {
      for (uint32_t index = next++; index < grid.blocks; index = next++) {
        collops::cuda::HostBlock block(index, grid.blocks, grid.threads);
        kernel.run(args, block);
      }
    } catch (const WaitedTooLong&) {
      next = grid.blocks;
    }
    run_here = nullptr;
  };
  std::vector<std::thread> workers;
  for (uint32_t i = 1; i < DrawBlocksAtOnce(grid); ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  if (run.waits) {
    --context->waiting;
    context->waiting_threads -= run.threads;
  }
  if (!run.is_late) return Result::kSuccess;
  Mistake(std::string(kernel.name) + " has waited too long for a signal");
  return kLaunchTimeout;
}

}  // namespace collops_sim

// For tests: how many kernels of the current context's device run and have waited for a signal.
extern "C" int SimWaitingKernels() {
  return collops_sim::CurrentContext()->waiting;
}

// And how many threads they have, which is what they take of the device.
extern "C" int64_t SimWaitingThreads() {
  return collops_sim::CurrentContext()->waiting_threads;
}

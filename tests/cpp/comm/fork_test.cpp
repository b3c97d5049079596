// A child of fork() needs no lock that another thread of its parent had at the fork.
#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collops/comm/backends/shm/windows.h"
#include "collops/core/process/per_process.h"
#include "ranks.h"

namespace {

using collops::RankSet;
using collops::Window;
using collops::shm::WindowSpot;
using collops::shm::WindowTable;

constexpr int kForks = 40;
constexpr double kChildS = 5.0;

// Runs `work` repeatedly in threads while it forks children that run `body`.
void ForkBeside(const std::function<void()>& work, const std::function<void()>& body) {
  std::atomic<bool> stop{false};
  std::atomic<int> begun{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      ++begun;
      while (!stop) work();
    });
  }
  while (begun < 2) std::this_thread::yield();
  int hung = 0;
  for (int i = 0; i < kForks && hung == 0; ++i) {
    const ranks::Ended ended = ranks::Wait(ranks::Start(body), kChildS);
    hung += ended.exited && ended.code == 0 ? 0 : 1;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hung, 0);
}

struct Guarded {
  std::mutex mutex;
  int value = 0;
};
collops::PerProcess<Guarded> guarded;

}  // namespace

TEST(AForkedChildHasItsOwnLock) {
  Guarded& parents = guarded.Get();
  EXPECT_TRUE(&guarded.Get() == &parents);
  const std::lock_guard<std::mutex> lock(parents.mutex);
  parents.value = 7;
  const pid_t child = ranks::Start([&] {
    const std::lock_guard<std::mutex> own(guarded.Get().mutex);
    EXPECT_EQ(guarded.Get().value, 0);
    guarded.Get().value = 8;
    const pid_t grandchild = ranks::Start([] { EXPECT_EQ(guarded.Get().value, 0); });
    EXPECT_EQ(ranks::Wait(grandchild, kChildS).code, 0);
  });
  const ranks::Ended ended = ranks::Wait(child, kChildS);
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(guarded.Get().value, 7);
}

TEST(AChildDropsTheWindowsItInheritedBesideAThreadThatUsesThem) {
  const auto table = std::make_shared<WindowTable>(RankSet::All(2));
  std::vector<std::shared_ptr<Window>> windows(200);
  for (auto& window : windows) EXPECT_EQ(table->Allocate(4096, &window).message(), "");
  const void* const last = windows.back()->data();
  ForkBeside(
      [&] {
        WindowSpot spot;
        EXPECT_TRUE(table->Find(last, 4096, &spot));
      },
      [&] { windows.clear(); });
}

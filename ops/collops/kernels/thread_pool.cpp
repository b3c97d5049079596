#include "collops/kernels/thread_pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "collops/core/cpu_relax.h"
#include "collops/core/env.h"
#include "collops/core/process/cgroups.h"

namespace collops::kernels {
namespace {

std::atomic<int> num_threads{0};  // 0: not decided yet
std::atomic<int> ranks_here{0};   // 0: not known yet

// The work of one caller; lies on the caller's stack.
struct Job {
  PartFunction run;
  const void* context;
  int num_parts;
  std::atomic<int> next{0};

  void Work() {
    for (int part = next++; part < num_parts; part = next++) run(context, part);
  }
};

// Blocks signals in new threads: only the program's own threads should receive them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// How long a thread looks for the next job, or the caller for the end of this one, before it
// sleeps: waking a thread takes 60 us on a virtual machine, and a product is a series of jobs.
constexpr std::chrono::microseconds kLooking{200};
// A round of looks that takes so long shows that others need the core.
constexpr std::chrono::microseconds kOthersRan{50};
constexpr int kLooksInRound = 64;

// Looks until `done`; false if it is time to sleep.
template <typename Done>
bool Look(const Done& done) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point now = Clock::now();
  const Clock::time_point end = now + kLooking;
  while (true) {
    for (int i = 0; i < kLooksInRound; ++i) {
      if (done()) return true;
      CpuRelax();
    }
    std::this_thread::yield();
    const Clock::time_point begun = std::exchange(now, Clock::now());
    if (now > end || now - begun > kOthersRan) return done();
  }
}

// Serves one caller at a time and refuses others instead of waiting.
class ThreadPool {
 public:
  bool Run(Job* job, int wanted_threads);
  // Ends the threads; later callers are refused. Waits for a caller that is at work.
  void Stop();

 private:
  void Grow(size_t size);
  void Serve();
  bool Take();
  void Leave();

  std::atomic<bool> busy_{false};
  std::vector<std::thread> threads_;  // changed by the caller that has busy_
  std::mutex mutex_;                  // of those who sleep and who wake them
  std::condition_variable work_;
  std::condition_variable finished_;
  Job* job_ = nullptr;           // written while nobody works
  std::atomic<int> wanted_{0};   // threads that job_ still takes
  std::atomic<int> working_{0};  // threads that work on it, or look whether they may
  std::atomic<int> asleep_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stopping_{false};
};

bool ThreadPool::Run(Job* job, int wanted_threads) {
  if (busy_.exchange(true)) return false;
  Grow(static_cast<size_t>(wanted_threads));
  const int threads = static_cast<int>(threads_.size());
  const int wanted = std::min(wanted_threads, threads);
  job_ = job;
  wanted_ = wanted;
  // Who is not asleep by now looks once more before it sleeps.
  const int missing = wanted - (threads - asleep_);
  if (missing > 0) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    for (int i = 0; i < missing; ++i) work_.notify_one();
  }
  job->Work();
  wanted_ = 0;  // threads that are not awake by now are not needed
  const auto finished = [this] { return working_ == 0; };
  if (!Look(finished)) {
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_ = true;
    finished_.wait(lock, finished);
    caller_sleeps_ = false;
  }
  busy_ = false;
  return true;
}

void ThreadPool::Grow(size_t size) {
  if (threads_.size() >= size) return;
  const SignalsBlocked blocked;
  try {
    while (threads_.size() < size) threads_.emplace_back([this] { Serve(); });
  } catch (const std::system_error&) {
    // No more threads can be made: the existing ones do the work.
  }
}

// The loop of each thread: waits for a job and takes part in it.
void ThreadPool::Serve() {
  const auto called = [this] { return stopping_ || wanted_ > 0; };
  while (true) {
    if (!Look(called)) {
      std::unique_lock<std::mutex> lock(mutex_);
      ++asleep_;
      if (!called()) work_.wait(lock);
      --asleep_;
    }
    if (stopping_) return;
    // Who wakes too late for a job looks for the next one.
    if (!Take()) continue;
    job_->Work();
    Leave();
  }
}

// Whether this thread is one of those that the job takes. It counts as working from before it is
// one, so that the caller waits for it.
bool ThreadPool::Take() {
  ++working_;
  int wanted = wanted_;
  while (wanted > 0) {
    if (wanted_.compare_exchange_weak(wanted, wanted - 1)) return true;
  }
  Leave();
  return false;
}

void ThreadPool::Leave() {
  if (--working_ > 0 || !caller_sleeps_) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  finished_.notify_one();
}

void ThreadPool::Stop() {
  while (busy_.exchange(true)) std::this_thread::yield();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::atomic<ThreadPool*> pool{nullptr};

// The parent's pool, as a child of fork() sees it: its threads do not exist here and its locks may
// be held, so it is never used.
std::atomic<ThreadPool*> inherited{nullptr};

void ForgetInChild() {
  ThreadPool* const parents = pool.exchange(nullptr);
  if (parents != nullptr) inherited = parents;
  num_threads = 0;
  ranks_here = 0;
}

// Registered when the library is loaded: at first use another thread might fork meanwhile.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, ForgetInChild);
std::atomic<bool> stops_at_exit{false};

// Stopped but not freed at exit: a thread of the program may still call it.
void StopAtExit() {
  if (ThreadPool* const ours = pool.load()) ours->Stop();
}

ThreadPool& GetPool() {
  if (!stops_at_exit.load() && !stops_at_exit.exchange(true)) {
    static_cast<void>(std::atexit(StopAtExit));
  }
  ThreadPool* ours = pool.load();
  if (ours != nullptr) return *ours;
  ThreadPool* const fresh = new ThreadPool;
  if (pool.compare_exchange_strong(ours, fresh)) return *fresh;
  delete fresh;  // another thread was first
  return *ours;
}

Status Decide() {
  Env env;
  const Status status = Env::Read(&env);
  const int ranks = ranks_here;
  const int share = ranks > 0 ? std::max(1, FindUsableCores().count / ranks) : 1;
  num_threads = status.ok() && env.num_threads > 0 ? env.num_threads : share;
  return status;
}

}  // namespace

int NumThreads() {
  const int decided = num_threads.load(std::memory_order_relaxed);
  if (decided > 0) return decided;
  static_cast<void>(Decide());  // an invalid value is reported where communicators are made
  return num_threads.load(std::memory_order_relaxed);
}

Status SetDefaultShare(int ranks) {
  int known = ranks_here.load();
  while (known < ranks && !ranks_here.compare_exchange_weak(known, ranks)) {
  }
  return Decide();
}

void ForceNumThreads(int forced) {
  num_threads = forced;
}

void RunParts(int num_parts, PartFunction run, const void* context) {
  const int helpers = std::min(NumThreads(), num_parts) - 1;
  Job job{run, context, num_parts};
  if (helpers <= 0 || !GetPool().Run(&job, helpers)) job.Work();
}

}  // namespace collops::kernels

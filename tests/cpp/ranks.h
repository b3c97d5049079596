// Runs a function in several forked processes, as the ranks of one job.
#ifndef COLLOPS_TESTS_CPP_RANKS_H_
#define COLLOPS_TESTS_CPP_RANKS_H_

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "collops/comm/backends/shm/communicator.h"
#include "sanitized.h"

namespace ranks {

// A job that no other test, and no other run of this test, can meet.
inline collops::JobIdentity FreshJob() {
  static std::atomic<int> number{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return {"test-" + std::to_string(getpid()) + "-" + std::to_string(number++) + "-" +
              std::to_string(now),
          "the test"};
}

inline std::shared_ptr<collops::Communicator> Make(
    const collops::JobIdentity& job, int rank, int rank_size,
    double timeout_s = check::Patience(20.0), collops::CommMode mode = collops::COMM_MULTI_PROCESS,
    const collops::Tuning& tuning = {}) {
  collops::CommunicatorSpec spec;
  spec.comm_mode = mode;
  spec.backend = "shm";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.timeout_s = timeout_s;
  spec.tuning = tuning;
  return std::make_shared<collops::shm::ShmCommunicator>(
      std::make_shared<collops::control::Control>(spec, job,
                                                  collops::shm::SegmentLayout::Bytes(rank_size)));
}

// An event that one process signals to another: a byte in a pipe. A wait for what does not come
// ends before the time limit of a test program, so that its place is known.
class Event {
 public:
  Event() { EXPECT_EQ(pipe(ends_), 0); }
  ~Event() {
    close(ends_[0]);
    close(ends_[1]);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void Set(size_t times = 1) const {
    for (; times > 0; --times) EXPECT_EQ(write(ends_[1], "x", 1), 1);
  }
  void Wait(size_t times = 1) const {
    char byte = 0;
    for (; times > 0; --times) {
      pollfd polled{ends_[0], POLLIN, 0};
      // A process that is stopped for a while has looked once meanwhile.
      constexpr int kLookMs = 100;
      const int most_looks = static_cast<int>(check::Patience(450));
      int looks = 0;
      while (poll(&polled, 1, kLookMs) == 0 && ++looks < most_looks) continue;
      if (looks == most_looks) return check::Fail(__FILE__, __LINE__, "an event did not come");
      EXPECT_EQ(read(ends_[0], &byte, 1), 1);
    }
  }

 private:
  int ends_[2] = {-1, -1};
};

struct Ended {
  bool exited = false;  // false: ended by a signal, or killed here because it was late
  int code = 0;
};

// Forks a child that runs `body` and exits with the number of its failed expectations; its pid.
inline pid_t Start(const std::function<void()>& body) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0) {
    // Nobody would do what the others wait for; and to kill() it means all processes.
    std::perror("fork");
    std::abort();
  }
  if (pid != 0) return pid;
  check::Failures() = 0;
  body();
  std::fflush(stdout);
  _exit(check::Failures() > 100 ? 100 : check::Failures());
}

inline Ended Wait(pid_t pid, double timeout_s = check::Patience(60.0)) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      check::Fail(__FILE__, __LINE__, "a rank did not end in time");
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return {};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return {WIFEXITED(status), WIFEXITED(status) ? WEXITSTATUS(status) : 0};
}

// Every rank runs `body(rank, communicator)`; a failed expectation in any of them fails the test.
inline void Run(int rank_size, const std::function<void(int, collops::Communicator&)>& body,
                double timeout_s = check::Patience(20.0)) {
  const collops::JobIdentity job = FreshJob();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < rank_size; ++rank) {
    pids.push_back(Start([&] {
      const auto communicator = Make(job, rank, rank_size, timeout_s);
      body(rank, *communicator);
    }));
  }
  for (const pid_t pid : pids) {
    const Ended ended = Wait(pid);
    EXPECT_TRUE(ended.exited);
    EXPECT_EQ(ended.code, 0);
  }
}

// As Run(), with ranks that are threads of this process, so that TSan can see all of them.
inline void RunThreads(int rank_size,
                       const std::function<void(int, collops::Communicator&)>& body) {
  const collops::JobIdentity job = FreshJob();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < rank_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator =
          Make(job, rank, rank_size, check::Patience(20.0), collops::COMM_MULTI_THREAD);
      body(rank, *communicator);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace ranks

#endif  // COLLOPS_TESTS_CPP_RANKS_H_

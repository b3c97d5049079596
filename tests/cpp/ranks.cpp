#include "ranks.h"

#include <poll.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace ranks {

collops::JobIdentity FreshJob() {
  static std::atomic<int> number{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return {"test-" + std::to_string(getpid()) + "-" + std::to_string(number++) + "-" +
              std::to_string(now),
          "the test"};
}

std::shared_ptr<collops::Communicator> Make(const collops::JobIdentity& job, int rank,
                                            int rank_size, double timeout_s, collops::CommMode mode,
                                            const collops::Tuning& tuning) {
  collops::CommunicatorSpec spec;
  spec.comm_mode = mode;
  spec.backend = "shm";
  spec.rank = rank;
  spec.rank_size = rank_size;
  spec.timeout_s = timeout_s;
  spec.tuning = tuning;
  return std::make_shared<collops::shm::ShmCommunicator>(
      std::make_shared<collops::control::Control>(spec, job,
                                                  collops::shm::SegmentLayout::Shape(rank_size)));
}

void Event::Set(size_t times) const {
  for (; times > 0; --times) EXPECT_EQ(write(ends_[1], "x", 1), 1);
}

void Event::Wait(size_t times) const {
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

pid_t Start(const std::function<void()>& body) {
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

Ended Wait(pid_t pid, double timeout_s) {
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

void Run(int rank_size, const std::function<void(int, collops::Communicator&)>& body,
         double timeout_s) {
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

void RunThreads(int rank_size, const std::function<void(int, collops::Communicator&)>& body) {
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

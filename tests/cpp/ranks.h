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
collops::JobIdentity FreshJob();

std::shared_ptr<collops::Communicator> Make(const collops::JobIdentity& job, int rank,
                                            int rank_size, double timeout_s = check::Patience(20.0),
                                            collops::CommMode mode = collops::COMM_MULTI_PROCESS,
                                            const collops::Tuning& tuning = {});

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

  void Set(size_t times = 1) const;
  void Wait(size_t times = 1) const;

 private:
  int ends_[2] = {-1, -1};
};

struct Ended {
  bool exited = false;  // false: ended by a signal, or killed here because it was late
  int code = 0;
};

// Forks a child that runs `body` and exits with the number of its failed expectations; its pid.
pid_t Start(const std::function<void()>& body);

Ended Wait(pid_t pid, double timeout_s = check::Patience(60.0));

// Every rank runs `body(rank, communicator)`; a failed expectation in any of them fails the test.
void Run(int rank_size, const std::function<void(int, collops::Communicator&)>& body,
         double timeout_s = check::Patience(20.0));

// As Run(), with ranks that are threads of this process, so that TSan can see all of them.
void RunThreads(int rank_size, const std::function<void(int, collops::Communicator&)>& body);

}  // namespace ranks

#endif  // COLLOPS_TESTS_CPP_RANKS_H_

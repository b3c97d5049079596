// Counts the user-space instructions of this thread, where the machine lets it.
#ifndef COLLOPS_TESTS_BENCH_LOOP_INSTRUCTIONS_H_
#define COLLOPS_TESTS_BENCH_LOOP_INSTRUCTIONS_H_

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

// Owns the counter of the thread that made it. Waits for nothing.
class Instructions {
 public:
  Instructions() {
    perf_event_attr wanted = {};
    wanted.size = sizeof(wanted);
    wanted.type = PERF_TYPE_HARDWARE;
    wanted.config = PERF_COUNT_HW_INSTRUCTIONS;
    wanted.exclude_kernel = 1;
    wanted.exclude_hv = 1;
    fd_ = static_cast<int>(syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0));
    if (fd_ < 0) problem_ = std::strerror(errno);
  }
  Instructions(const Instructions&) = delete;
  Instructions& operator=(const Instructions&) = delete;
  ~Instructions() {
    if (fd_ >= 0) close(fd_);
  }

  // Empty, or why nothing is counted.
  const std::string& problem() const { return problem_; }

  int64_t Now() const {
    int64_t count = 0;
    return read(fd_, &count, sizeof(count)) == sizeof(count) ? count : 0;
  }

 private:
  int fd_;
  std::string problem_;
};

#endif  // COLLOPS_TESTS_BENCH_LOOP_INSTRUCTIONS_H_

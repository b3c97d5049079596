#pragma once

#include <time.h>

#include <cstdint>
#include <string>

namespace [[gnu::visibility("default")]] collops {
namespace recording {

// The communicator that makes a call, as a trace shows it.
struct Lane {
  uint64_t id = 0;  // no two communicators of a process share it
  std::string comm_domain;
  std::string backend;
  int rank = 0;
  int rank_size = 0;
  // The rank whose file has its calls, and whether each rank of this process has a file of its own:
  // ranks that are threads. A process has one file otherwise, that of its first communicator.
  int file_rank = 0;
  bool is_thread = false;
};

// One line of a trace. `name` and `category` need no escapes.
struct Event {
  const char* name;
  const char* category;
  char phase;  // of Chrome's format: 'X' a slice, 'i' an instant
  int64_t begin_ns;
  int64_t end_ns;
  std::string args;  // "\"seq\":3,\"ranks\":4"; may be empty
};

// Nanoseconds of a clock that all processes of a host share.
inline int64_t Now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace recording
}  // namespace collops

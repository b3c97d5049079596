// The cases that every backend must pass, on shm between processes and between threads, and on a
// toy backend that only has three ways to move bytes.
#include "conformance/data_cases.h"
#include "conformance/error_cases.h"
#include "conformance/ground.h"
#include "conformance/group_cases.h"

namespace {

using namespace conformance;

constexpr Ground kShmProcesses = {"shm between processes", "shm", collops::COMM_MULTI_PROCESS};
constexpr Ground kShmThreads = {"shm between threads", "shm", collops::COMM_MULTI_THREAD};
constexpr Ground kToyThreads = {"toy between threads", "toy", collops::COMM_MULTI_THREAD};

void RunAll(const Ground& ground) {
  RunCases(ground, DataCases());
  RunCases(ground, GroupCases());
  RunCases(ground, ErrorCases());
}

void RunStarted(const Ground& ground) {
  CallsAreStarted() = true;
  RunAll(ground);
  CallsAreStarted() = false;
}

}  // namespace

TEST(ShmBetweenProcesses) {
  RunAll(kShmProcesses);
}

TEST(ShmBetweenThreads) {
  RunAll(kShmThreads);
}

TEST(TheToyBackendBetweenThreads) {
  RunAll(kToyThreads);
}

TEST(StartedCallsOnShmBetweenProcesses) {
  RunStarted(kShmProcesses);
}

TEST(StartedCallsOnShmBetweenThreads) {
  RunStarted(kShmThreads);
}

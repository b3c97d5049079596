// What befalls a rank in the middle of a call: it touches a page that it may not touch, and the
// handler of that fault ends, stops or delays the process. So it happens inside the copy of a
// chunk, at the same byte in every run.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "check.h"

namespace doom {

enum class Fault { kKilled, kSegfault, kExit, kAbort, kBadAlloc, kOutOfMemory };
constexpr const char* kNames[] = {"killed",  "segfault",  "exit",
                                  "aborted", "bad_alloc", "out of memory"};
inline const char* Name(Fault fault) {
  return kNames[static_cast<int>(fault)];
}

// What all processes of a job see.
struct Common {
  std::atomic<int64_t> at_ns;  // when it happened; 0: not yet
  std::atomic<pid_t> victim;   // the doomed rank
  std::atomic<pid_t> child;    // of the doomed rank, to be ended by the test
  std::atomic<int64_t> most_ns;
  std::atomic<int> released;         // lets a rank that is held go on
  std::atomic<int> heard;            // ranks that know of the end
  std::atomic<int64_t> deadline_ns;  // before the time-out of a rank that waits only briefly
  std::atomic<int64_t> held_ns;      // when the test saw that the victim is held up; 0: not yet
  std::atomic<int> early;            // the time-out came before that
};
// Which of several jobs that run at once this process belongs to.
inline int& Job() {
  static int job = 0;
  return job;
}
inline Common& Shared() {
  constexpr int kMostJobs = 64;
  static void* const memory = mmap(nullptr, kMostJobs * sizeof(Common), PROT_READ | PROT_WRITE,
                                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return static_cast<Common*>(memory)[Job()];
}
inline void Reset() {
  Shared().at_ns = Shared().most_ns = 0;
  Shared().child = Shared().victim = 0;
  Shared().released = Shared().heard = Shared().early = 0;
  Shared().deadline_ns = Shared().held_ns = 0;
}

inline int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

// The file through which a process enters the cgroup that kOutOfMemory needs.
inline std::string& CgroupFile() {
  static std::string file;
  return file;
}

// An exception that nobody catches.
inline void RunOutOfAddressSpace() noexcept {
  const rlimit none = {1, 1};
  setrlimit(RLIMIT_AS, &none);
  static std::atomic<char*> kept{nullptr};  // so that nothing is optimised away
  for (;;) kept = new char[size_t{64} << 20];
}

// The kernel ends the process when its cgroup has no more memory.
inline void FillCgroup() {
  std::FILE* const file = std::fopen(CgroupFile().c_str(), "w");
  if (file == nullptr) _exit(1);
  std::fprintf(file, "%d", getpid());
  std::fclose(file);
  for (;;) {
    constexpr size_t kBytes = 64 << 20;
    void* const memory =
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(1);
    std::memset(memory, 1, kBytes);
  }
}

// Ends this process. From a signal handler too: the thread is in a copy, and holds no lock.
inline void Die(Fault fault) {
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  Shared().at_ns = NowNs();
  signal(SIGABRT, SIG_DFL);
  signal(SIGSEGV, SIG_DFL);
  switch (fault) {
    case Fault::kKilled:
      raise(SIGKILL);
      return;
    case Fault::kSegfault:
      raise(SIGSEGV);  // blocked in a handler: it is delivered when that returns
      return;
    case Fault::kExit:
      _exit(3);
    case Fault::kAbort:
      std::abort();
    case Fault::kBadAlloc:
      RunOutOfAddressSpace();
      return;
    case Fault::kOutOfMemory:
      FillCgroup();
      return;
  }
}

// What happens at the touch of a page. It may make the page usable and return.
using Touched = void (*)();

// Memory whose first and last bytes have a page on either side that nobody may touch, and, where
// `touched` is given, whose middle may not be touched at first. One such at a time per process.
class Memory {
 public:
  explicit Memory(int64_t bytes, Touched touched = nullptr) : bytes_(bytes) {
    const int64_t inner = (bytes + kPage - 1) / kPage * kPage;
    all_bytes_ = static_cast<size_t>(inner + 2 * kPage);
    base_ = static_cast<char*>(
        mmap(nullptr, all_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_TRUE(base_ != MAP_FAILED);
    mprotect(base_, kPage, PROT_NONE);
    mprotect(base_ + kPage + inner, kPage, PROT_NONE);
    // The end is flush with the guard behind it; what is left before it is checked by Whole().
    data_ = base_ + kPage + inner - bytes;
    std::memset(base_ + kPage, kPoison, static_cast<size_t>(inner));
    touched_ = touched;
  }
  ~Memory() {
    if (Page() == page_) Page() = nullptr;
    munmap(base_, all_bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int32_t* data() const { return reinterpret_cast<int32_t*>(data_); }
  int64_t bytes() const { return bytes_; }

  // From now on the middle may not be touched: call it once the memory is filled.
  void Arm() {
    if (touched_ == nullptr) return;
    Page() = page_ = base_ + (data_ + bytes_ / 2 - base_) / kPage * kPage;
    Then() = touched_;
    struct sigaction action = {};
    action.sa_sigaction = Handle;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
    mprotect(page_, kPage, PROT_NONE);
  }
  // Makes the page usable again: the copy goes on.
  static void Disarm() { mprotect(Page(), kPage, PROT_READ | PROT_WRITE); }

  // Whether the bytes before the data are as they were.
  bool Whole() const {
    for (const char* at = base_ + kPage; at < data_; ++at) {
      if (*at != kPoison) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kPage = 4096;
  static constexpr char kPoison = 0x5a;

  static char*& Page() {
    static char* page = nullptr;
    return page;
  }
  static Touched& Then() {
    static Touched then = nullptr;
    return then;
  }
  static void Handle(int, siginfo_t* info, void*) {
    const char* const at = static_cast<const char*>(info->si_addr);
    if (Page() != nullptr && at >= Page() && at < Page() + kPage) return Then()();
    signal(SIGSEGV, SIG_DFL);  // a fault of the program: it happens again, and ends it
  }

  int64_t bytes_;
  size_t all_bytes_ = 0;
  char* base_ = nullptr;
  char* data_ = nullptr;
  char* page_ = nullptr;
  Touched touched_ = nullptr;
};

}  // namespace doom

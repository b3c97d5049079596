#pragma once

#include <optional>

#include "comm/backends/shm/endpoint.h"
#include "core/deadline.h"
#include "core/status.h"

namespace collops::shm {

class WindowMail;

inline void CpuRelax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How one rank waits in one call: it spins briefly, yields the core, and sleeps once nothing has
// happened for a while; then it also looks for failures, lost peers, Ctrl-C and the deadline.
class Waiter {
 public:
  Waiter(Endpoint* endpoint, WindowMail* mail, double timeout_s, uint64_t sequence,
         const char* name)
      : endpoint_(endpoint), mail_(mail), timeout_s_(timeout_s), sequence_(sequence), name_(name) {}

  // A call that computes between its waits gives each of them the whole time-out.
  void RestartDeadline() { deadline_.reset(); }

  // `ready` is asked again and again, and never once it has said true.
  template <typename Ready>
  Status Until(Ready&& ready) {
    for (int i = 0; i < kSpins; ++i) {
      if (ready()) return Ok();
      CpuRelax();
    }
    Patience patience;
    while (!ready()) {
      if (endpoint_->GroupFailed(sequence_)) return endpoint_->GroupFailure(sequence_);
      if (patience.Yield()) continue;
      RETURN_IF_ERROR(Look());
      bool is_ready = false;
      endpoint_->Nap([&] { return (is_ready = ready()) || endpoint_->GroupFailed(sequence_); });
      if (is_ready) return Ok();
    }
    return Ok();
  }

 private:
  // More spins than this starve the peer when ranks outnumber cores.
  static constexpr int kSpins = 64;

  // Yields for the first millisecond of a wait; after that the rank counts as idle.
  class Patience {
   public:
    bool Yield();

   private:
    std::optional<Deadline> idle_;
  };

  // The slow checks, before every nap.
  Status Look();

  Endpoint* endpoint_;
  WindowMail* mail_;
  double timeout_s_;
  uint64_t sequence_;
  const char* name_;
  std::optional<Deadline> deadline_;
};

}  // namespace collops::shm

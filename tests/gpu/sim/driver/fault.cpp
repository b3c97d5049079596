#include "driver/fault.h"

#include <csignal>
#include <cstdint>
#include <cstring>

#include <unistd.h>

#include "driver/memory.h"

namespace collops_sim {
namespace {

struct sigaction before;

void Write(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);
}

// The fault occurs again where this returns, and what was set before takes it.
void Explain(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (IsDeviceAddress(address)) {
    Write("simulated CUDA: host code touched device memory\n");
  } else if (IsHostView(address)) {
    Write("simulated CUDA: a kernel touched device memory that is not there or not accessible\n");
  }
  sigaction(SIGSEGV, &before, nullptr);
}

}  // namespace

void ExplainFaults() {
  struct sigaction action = {};
  action.sa_sigaction = Explain;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before);
}

}  // namespace collops_sim

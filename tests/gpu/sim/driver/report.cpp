#include "driver/report.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace collops_sim {
namespace {

// As memory and streams, what is never destroyed: threads may outlive main().
thread_local std::string last_text;
std::atomic<int> mistakes{0};
std::atomic<const std::string*> blocked{nullptr};

bool IsStrict() {
  const char* text = std::getenv("COLLOPS_SIM_STRICT");
  return text != nullptr && std::strcmp(text, "1") == 0;
}

}  // namespace

Result Refuse(Result result, const std::string& text) {
  last_text = text;
  return result;
}

void Mistake(const std::string& text) {
  last_text = text;
  ++mistakes;
  std::fprintf(stderr, "simulated CUDA: mistake: %s\n", text.c_str());
  if (IsStrict()) std::abort();
}

bool IsBlocked(const std::string& name) {
  const std::string* const wish = blocked.load();
  return wish != nullptr && *wish == name;
}

}  // namespace collops_sim

extern "C" {

// For tests: why this thread's last call was refused, and how many mistakes the process made.
const char* SimLastText() {
  return collops_sim::last_text.c_str();
}
int SimMistakes() {
  return collops_sim::mistakes.load();
}
void SimForgetMistakes() {
  collops_sim::mistakes = 0;
}
// For tests: from now on that function waits until its GPU has nothing left to do.
void SimBlock(const char* function) {
  collops_sim::blocked = new std::string(function);
}

}  // extern "C"

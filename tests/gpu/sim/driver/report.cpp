#include "driver/report.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>

namespace collops_sim {
namespace {

// As memory and streams, what is never destroyed: threads may outlive main().
thread_local std::string last_text;
std::atomic<int> mistakes{0};
std::atomic<const std::string*> blocked{nullptr};

int NextCall(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const calls = new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return ++(*calls)[name];
}

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

int PlannedFailure(const std::string& name) {
  const int call = NextCall(name);
  const char* text = std::getenv("COLLOPS_SIM_FAIL");
  std::istringstream wishes(text == nullptr ? "" : text);
  for (std::string wish; std::getline(wishes, wish, ',');) {
    std::istringstream fields(wish);
    std::string wished;
    std::string number;
    std::string code;
    std::getline(fields, wished, ':');
    std::getline(fields, number, ':');
    std::getline(fields, code);
    if (wished != name || std::atoi(number.c_str()) != call) continue;
    last_text = name + " was told to fail";
    return std::atoi(code.c_str());
  }
  return 0;
}

bool IsBlocked(const std::string& name) {
  const std::string* const wish = blocked.load();
  return wish != nullptr && *wish == name;
}

double TimeoutS() {
  const char* text = std::getenv("COLLOPS_SIM_TIMEOUT_S");
  return text == nullptr ? 60.0 : std::atof(text);
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

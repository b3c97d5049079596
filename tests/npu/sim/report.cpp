#include "report.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

namespace collops_sim {
namespace {

// As in CANN, a thread is told of its own errors.
thread_local std::string recent;
thread_local std::string handed_out;

int NextCall(const char* function) {
  static auto* const mutex = new std::mutex;
  static auto* const calls = new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return ++(*calls)[function];
}

}  // namespace

int Report(int code, const std::string& text) {
  recent = "EI9999: simulated CANN: " + text;
  return code;
}

int ToldToFail(const char* function) {
  const int call = NextCall(function);
  const char* text = std::getenv("COLLOPS_SIM_FAIL");
  std::istringstream wishes(text == nullptr ? "" : text);
  for (std::string wish; std::getline(wishes, wish, ',');) {
    std::istringstream fields(wish);
    std::string name;
    std::string number;
    std::string code;
    std::getline(fields, name, ':');
    std::getline(fields, number, ':');
    std::getline(fields, code);
    if (name != function || std::atoi(number.c_str()) != call) continue;
    return Report(std::atoi(code.c_str()), std::string(function) + " was told to fail");
  }
  return 0;
}

}  // namespace collops_sim

extern "C" const char* aclGetRecentErrMsg() {
  using collops_sim::handed_out;
  using collops_sim::recent;
  if (recent.empty()) return nullptr;
  handed_out.swap(recent);
  recent.clear();
  return handed_out.c_str();
}

#include "sim/faults.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

namespace collops_sim {
namespace {

int NextCall(const std::string& name) {
  static auto* const mutex = new std::mutex;
  static auto* const calls = new std::map<std::string, int>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return ++(*calls)[name];
}

}  // namespace

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
    const int answer = std::atoi(code.c_str());
    static_cast<void>(Refuse(static_cast<Answer>(answer), name + " was told to fail"));
    return answer;
  }
  return 0;
}

double TimeoutS() {
  const char* text = std::getenv("COLLOPS_SIM_TIMEOUT_S");
  return text == nullptr ? 60.0 : std::atof(text);
}

}  // namespace collops_sim

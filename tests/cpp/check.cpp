#include "check.h"

#include <cstdio>
#include <cstring>
#include <exception>

namespace check {
namespace {

struct Test {
  std::string file;  // without folder and suffix
  const char* name;
  void (*body)();
};

// In a function, because tests register themselves before main() begins, in any order.
std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

bool RunOne(const Test& test) {
  const int before = Failures();
  try {
    test.body();
  } catch (const std::exception& error) {
    Fail(test.name, 0, std::string("threw ") + error.what());
  }
  const bool passed = Failures() == before;
  std::printf("%s %s\n", passed ? "ok    " : "FAILED", test.name);
  std::fflush(stdout);
  return passed;
}

// Runs the tests of `file`, or of all files if it is empty, whose name contains `part`.
int RunTests(const std::string& file, const char* part) {
  int ran = 0;
  int failed = 0;
  for (const Test& test : Tests()) {
    if (!file.empty() && test.file != file) continue;
    if (part != nullptr && std::strstr(test.name, part) == nullptr) continue;
    ++ran;
    failed += RunOne(test) ? 0 : 1;
  }
  std::printf("%d tests, %d failed\n", ran, failed);
  if (ran == 0) std::printf("no test ran: that is a failure\n");
  return ran > 0 && failed == 0 ? 0 : 1;
}

}  // namespace

int& Failures() {
  static int failures = 0;
  return failures;
}

Registration::Registration(const char* file, const char* name, void (*body)()) {
  const char* const slash = std::strrchr(file, '/');
  const std::string last = slash == nullptr ? file : slash + 1;
  Tests().push_back({last.substr(0, last.find('.')), name, body});
}

void Fail(const char* file, int line, const std::string& what) {
  std::printf("%s:%d: %s\n", file, line, what.c_str());
  ++Failures();
}

bool ExpectTrue(bool value, const char* text, const char* file, int line) {
  if (!value) Fail(file, line, std::string(text) + " is false");
  return value;
}

bool ExpectContains(const std::string& text, const std::string& part, const char* file, int line) {
  if (text.find(part) != std::string::npos) return true;
  Fail(file, line, "\"" + part + "\" is not in\n  \"" + text + "\"");
  return false;
}

}  // namespace check

// PROGRAM [--file NAME] [PART OF A TEST'S NAME]
int main(int argc, char** argv) {
  const bool of_file = argc > 2 && std::strcmp(argv[1], "--file") == 0;
  const int next = of_file ? 3 : 1;
  return check::RunTests(of_file ? argv[2] : "", argc > next ? argv[next] : nullptr);
}

#include "collops/core/trace/log.h"

#include <unistd.h>

#include "collops/core/env.h"

namespace collops {
namespace {

// An invalid value is reported where the environment is read to create something.
int TraceLevel() {
  Env env;
  return Env::Read(&env).ok() ? env.trace : 0;
}

}  // namespace

void Log(LogLevel level, const std::string& line) {
  const LogSink sink = LogSinkSlot().load(std::memory_order_acquire);
  if (sink != nullptr && sink(level, line)) return;
  const std::string text = line + "\n";
  // An error is ignored: the user may have closed standard error.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

bool TraceEnabled() {
  return TraceLevel() >= 1;
}

bool TraceStrips() {
  return TraceLevel() >= 2;
}

}  // namespace collops

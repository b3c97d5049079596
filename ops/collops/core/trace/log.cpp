#include "collops/core/trace/log.h"

#include <unistd.h>

namespace collops {

void Log(LogLevel level, const std::string& line) {
  const LogSink sink = LogSinkSlot().load(std::memory_order_acquire);
  if (sink != nullptr && sink(level, line)) return;
  const std::string text = line + "\n";
  // An error is ignored: the user may have closed standard error.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace collops

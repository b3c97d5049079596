#pragma once

#include <atomic>
#include <string>

namespace [[gnu::visibility("default")]] collops {

// The numbers are those of Python's module logging.
enum class LogLevel : int { kDebug = 10, kInfo = 20, kWarning = 30 };

// Takes a line and returns true, or returns false: the line is then written to standard error.
// Called in any thread, also in one that holds locks of the caller's; it must not call the library.
using LogSink = bool (*)(LogLevel level, const std::string& line);

// The binding installs the function, because the core does not know Python; null: there is none.
inline std::atomic<LogSink>& LogSinkSlot() {
  static std::atomic<LogSink> slot{nullptr};
  return slot;
}

// Passes a line to the sink, or writes it to standard error, not mixed with lines of other ranks.
void Log(LogLevel level, const std::string& line);

// COLLOPS_TRACE as a number. 1: every call of a communicator logs one line; 2: a fused call also
// logs what it has done and when.
bool TraceEnabled();
bool TraceStrips();

}  // namespace collops

#pragma once

#include <atomic>
#include <string>

#include "collops/core/status.h"
#include "collops/core/trace/event.h"

namespace [[gnu::visibility("default")]] collops {

// Records the calls of this process's communicators, including existing ones, until
// StopRecording(). With `path` = "trace.json" rank 3 writes "trace.rank3.json", and replaces an
// older one. An error if this process records already, or if `path` does not end in ".json" or its
// folder does not exist. COLLOPS_TRACE=trace.json does the same when the first communicator is
// made. `called` is what messages call this function.
Status StartRecording(const std::string& path, const char* called = "StartRecording");

// Writes what is not written yet, and closes the files; does nothing if this process does not
// record. Done at exit, too; not by a process that ends with _exit() or by a signal.
Status StopRecording();

namespace recording {

inline std::atomic<bool> on{false};

// Whether this process records: all that a call costs if it does not.
inline bool On() {
  return on.load(std::memory_order_relaxed);
}

// Adds an event of the thread with that number. Thread-safe; waits for no rank. An error of the
// file system ends the recording.
void Add(const Lane& lane, int thread, const Event& event);

// Warns if the recording has ended with an error. Called without locks, as the log may take some.
void WarnOfEnd();

// Writes what is not written yet.
void Flush();

// Begins what COLLOPS_TRACE asks for, once per process.
void StartFromEnvironment();

}  // namespace recording
}  // namespace collops

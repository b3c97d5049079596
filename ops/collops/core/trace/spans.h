#pragma once

#include <cstdint>
#include <string>

#include "collops/core/trace/recording.h"

namespace collops::recording {

// A call of a communicator as a slice of the trace, from its entry to its end. Inside it are slices
// of its waits, of the calls that it makes of other communicators, and of the rest, "move". Lives
// on the stack of the thread that makes the call.
class CallSpan {
 public:
  // Both must live as long as the span.
  CallSpan(const Lane& lane, const char* name);
  CallSpan(const CallSpan&) = delete;
  CallSpan& operator=(const CallSpan&) = delete;
  ~CallSpan();

  // What the slice shows of the call, as Event::args.
  std::string args;

 private:
  friend class WaitSpan;

  // A slice of what has run since the last wait or call.
  void AddMove(int64_t until_ns);
  void NoteIdle(const char* wait);

  CallSpan* const outer_;
  const Lane& lane_;
  const Lane& row_;  // of the outermost call: slices inside each other are in one row
  const char* const name_;
  const int64_t begin_ns_;
  int64_t cursor_ns_ = begin_ns_;
  bool waits_ = false;
  bool is_noted_ = false;  // that it waits long
};

// A wait inside a call as a slice of the trace; of waits inside each other, the outermost. If the
// process does not record, it costs one read of a flag.
class WaitSpan {
 public:
  explicit WaitSpan(const char* name) {
    if (On()) Begin(name);
  }
  WaitSpan(const WaitSpan&) = delete;
  WaitSpan& operator=(const WaitSpan&) = delete;
  ~WaitSpan() {
    if (call_ != nullptr) End();
  }

  // The rank for which it has waited.
  void set_awaited(int rank) { awaited_ = rank; }

  // Called before a thread sleeps: the trace is written, so that it is there if the process does
  // not wake up again, with the call that waits.
  static void BeforeSleep() {
    if (On()) WriteIdle();
  }

 private:
  void Begin(const char* name);
  void End();
  static void WriteIdle();

  CallSpan* call_ = nullptr;
  const char* name_ = "";
  int64_t begin_ns_ = 0;
  int awaited_ = -1;
};

}  // namespace collops::recording

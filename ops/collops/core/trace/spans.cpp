#include "collops/core/trace/spans.h"

#include <atomic>

namespace collops::recording {
namespace {

// What is shorter would make a trace long and tell little.
constexpr int64_t kLeastNs = 1000;

thread_local CallSpan* current = nullptr;

// The number of this thread among those that have made calls.
int ThreadNumber() {
  static std::atomic<int> threads{0};
  thread_local const int number = ++threads;
  return number;
}

}  // namespace

CallSpan::CallSpan(const Lane& lane, const char* name)
    : outer_(current),
      lane_(lane),
      row_(outer_ == nullptr ? lane : outer_->row_),
      name_(name),
      begin_ns_(Now()) {
  if (outer_ != nullptr) outer_->AddMove(begin_ns_);
  current = this;
}

CallSpan::~CallSpan() {
  const int64_t end_ns = Now();
  AddMove(end_ns);
  // A call of this communicator inside another one is a started call, for which that one waits.
  const bool is_part = outer_ != nullptr && outer_->lane_.id != lane_.id;
  Add(row_, ThreadNumber(), {name_, is_part ? "part" : "call", 'X', begin_ns_, end_ns, args});
  if (outer_ != nullptr) outer_->cursor_ns_ = end_ns;
  current = outer_;
  if (outer_ == nullptr && !On()) WarnOfEnd();
}

void CallSpan::AddMove(int64_t until_ns) {
  if (waits_ || until_ns - cursor_ns_ < kLeastNs) return;
  Add(row_, ThreadNumber(), {"move", "move", 'X', cursor_ns_, until_ns, ""});
  cursor_ns_ = until_ns;
}

void WaitSpan::Begin(const char* name) {
  if (current == nullptr || current->waits_) return;
  call_ = current;
  call_->waits_ = true;
  name_ = name;
  begin_ns_ = Now();
}

void WaitSpan::End() {
  const int64_t end_ns = Now();
  call_->waits_ = false;
  if (end_ns - begin_ns_ < kLeastNs) return;
  call_->AddMove(begin_ns_);
  call_->cursor_ns_ = end_ns;
  const std::string args = awaited_ < 0 ? "" : "\"awaited\":" + std::to_string(awaited_);
  Add(call_->row_, ThreadNumber(), {name_, "wait", 'X', begin_ns_, end_ns, args});
}

void WaitSpan::WriteIdle() {
  if (current == nullptr || current->is_noted_) return;
  current->is_noted_ = true;
  const int64_t now = Now();
  const std::string since = "\"ago_us\":" + std::to_string((now - current->begin_ns_) / 1000);
  const std::string args = current->args.empty() ? since : since + "," + current->args;
  Add(current->row_, ThreadNumber(), {current->name_, "idle", 'i', now, now, args});
  Flush();
}

}  // namespace collops::recording

#include "collops/core/trace/recording.h"

#include <climits>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <unistd.h>

#include "collops/core/env.h"
#include "collops/core/process/per_process.h"
#include "collops/core/trace/log.h"
#include "collops/core/trace/trace_file.h"

namespace collops {
namespace recording {
namespace {

// What this process records. A child of fork() has its own, which does not record: its parent's
// files stay the parent's.
class Recorder {
 public:
  Status Start(const std::string& path, const char* called);
  void StartOnce(const std::string& path);
  Status Stop();
  void Add(const Lane& lane, int thread, const Event& event);
  void Flush();
  // What has ended the recording, once.
  Status TakeFailure();

 private:
  using Files = std::map<int, std::unique_ptr<TraceFile>>;

  void Begin(const std::string& path);
  Status FileOf(const Lane& lane, TraceFile** file);
  // Closes all files; the first error.
  Status End();
  void EndIfFailed(const Status& status);

  std::mutex mutex_;
  bool begun_ = false;
  std::string path_;  // empty: this process does not record
  int process_rank_ = -1;
  Files files_;  // by rank
  Status failure_;
};

PerProcess<Recorder> recorder;

// A relative path is that of the folder in which the recording began.
std::string Absolute(const std::string& path) {
  char folder[PATH_MAX];
  if (path[0] == '/' || getcwd(folder, sizeof(folder)) == nullptr) return path;
  return Concat(folder, "/", path);
}

void Recorder::Begin(const std::string& path) {
  // At exit, whatever ends first; a process registers it once, and its children inherit it.
  static const int registered = std::atexit([] { static_cast<void>(StopRecording()); });
  static_cast<void>(registered);
  begun_ = true;
  path_ = Absolute(path);
  process_rank_ = -1;
  on.store(true);
}

Status Recorder::Start(const std::string& path, const char* called) {
  COLLOPS_CHECK_ARG(IsTracePath(path), ERROR_INVALID_PARAM, called,
                    ": path must be the name of a file that ends in .json, got \"", path, "\"");
  const std::string fault = FolderFault(path);
  COLLOPS_CHECK_ARG(fault.empty(), ERROR_INVALID_PARAM, called, ": path: ", fault);
  const std::lock_guard<std::mutex> lock(mutex_);
  COLLOPS_CHECK_ARG(path_.empty(), ERROR_INVALID_PARAM, called, ": this process records to ", path_,
                    " already: stop that first");
  Begin(path);
  return Ok();
}

void Recorder::StartOnce(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!begun_) Begin(path);
}

Status Recorder::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return End();
}

Status Recorder::End() {
  Status first;
  for (const auto& [rank, file] : files_) {
    const Status closed = file->Close();
    if (first.ok()) first = closed;
  }
  files_.clear();
  path_.clear();
  on.store(false);
  return first;
}

void Recorder::EndIfFailed(const Status& status) {
  if (status.ok()) return;
  const char* what = files_.empty() ? "no trace is written: " : "the trace ends here: ";
  failure_ = Status(status.code(), Concat(what, status.message()));
  static_cast<void>(End());
}

Status Recorder::TakeFailure() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(failure_, Ok());
}

Status Recorder::FileOf(const Lane& lane, TraceFile** file) {
  if (!lane.is_thread && process_rank_ < 0) process_rank_ = lane.file_rank;
  const int rank = lane.is_thread ? lane.file_rank : process_rank_;
  const auto found = files_.find(rank);
  if (found != files_.end()) {
    *file = found->second.get();
    return Ok();
  }
  std::unique_ptr<TraceFile> opened;
  COLLOPS_RETURN_IF_ERROR(TraceFile::Open(path_, rank, &opened));
  *file = (files_[rank] = std::move(opened)).get();
  return Ok();
}

void Recorder::Add(const Lane& lane, int thread, const Event& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (path_.empty()) {
    on.store(false);  // in a child of fork()
    return;
  }
  TraceFile* file = nullptr;
  const Status opened = FileOf(lane, &file);
  EndIfFailed(opened.ok() ? file->Add(lane, thread, event) : opened);
}

void Recorder::Flush() {
  const std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  for (const auto& [rank, file] : files_) {
    if (status.ok()) status = file->Flush();
  }
  EndIfFailed(status);
}

}  // namespace

void Add(const Lane& lane, int thread, const Event& event) {
  recorder.Get().Add(lane, thread, event);
}

void Flush() {
  recorder.Get().Flush();
}

void WarnOfEnd() {
  const Status failure = recorder.Get().TakeFailure();
  if (failure.ok()) return;
  Log(LogLevel::kWarning, Concat("collops: warning: ", failure.message()));
}

void StartFromEnvironment() {
  Env env;
  if (!Env::Read(&env).ok() || env.trace_path.empty()) return;
  recorder.Get().StartOnce(env.trace_path);
}

}  // namespace recording

Status StartRecording(const std::string& path, const char* called) {
  return recording::recorder.Get().Start(path, called);
}

Status StopRecording() {
  return recording::recorder.Get().Stop();
}

}  // namespace collops

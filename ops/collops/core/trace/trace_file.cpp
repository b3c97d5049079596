#include "collops/core/trace/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "collops/core/env.h"
#include "collops/core/json.h"

namespace collops::recording {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kClocksNs = 10 * kSecondNs;

// As JSON; bytes that are no UTF-8 are replaced.
std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// With the nanoseconds as decimals.
std::string Microseconds(int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof(text), "%" PRId64 ".%03d", ns / 1000, static_cast<int>(ns % 1000));
  return text;
}

int64_t RealTime() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kSecondNs + now.tv_nsec;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Equal in all processes of a host that share its monotonic clock, and no other host's.
std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// Opens `name` for this process alone; -1 with errno EWOULDBLOCK if another one writes it.
int OpenAlone(const std::string& name) {
  const int fd = open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return -1;
  // A file system without locks cannot tell.
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  if (locked && ftruncate(fd, 0) == 0) return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

}  // namespace

std::string FolderFault(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK) == 0) return "";
  return Concat("no file can be made in ", folder, ": ", std::strerror(errno));
}

Status TraceFile::Open(const std::string& path, int rank, std::unique_ptr<TraceFile>* file) {
  const std::string stem =
      Concat(path.substr(0, path.size() - std::strlen(kTraceEnding)), ".rank", rank);
  std::string name = stem + kTraceEnding;
  int fd = OpenAlone(name);
  if (fd < 0 && errno == EWOULDBLOCK) {
    name = Concat(stem, ".pid", getpid(), kTraceEnding);
    fd = OpenAlone(name);
  }
  COLLOPS_CHECK_ARG(fd >= 0, ERROR_RT_FAIL, "cannot open ", name, ": ", std::strerror(errno));
  file->reset(new TraceFile(fd, name, rank));
  (*file)->flushed_ns_ = Now();
  (*file)->text_ = "[";
  (*file)->Describe("process_name", 0, "name", Quoted(Concat("rank ", rank, " on ", HostName())));
  (*file)->Describe("process_sort_index", 0, "sort_index", std::to_string(rank));
  (*file)->AddClocks();
  return (*file)->Write();
}

TraceFile::~TraceFile() {
  static_cast<void>(Close());
}

void TraceFile::BeginLine() {
  text_ += text_ == "[" ? "\n" : ",\n";
}

// The process is the rank + 1: viewers take process 0 for the idle task.
void TraceFile::Describe(const char* what, int row, const char* key, const std::string& value) {
  BeginLine();
  text_ += Concat("{\"name\":\"", what, "\",\"ph\":\"M\",\"pid\":", rank_ + 1, ",\"tid\":", row,
                  ",\"args\":{\"", key, "\":", value, "}}");
}

// Of three readings the one in which both clocks were read closest to each other.
void TraceFile::AddClocks() {
  int64_t least = kSecondNs;
  int64_t monotonic = 0;
  int64_t real = 0;
  for (int i = 0; i < 3; ++i) {
    const int64_t before = Now();
    const int64_t now = RealTime();
    const int64_t between = Now() - before;
    if (i > 0 && between >= least) continue;
    least = between;
    monotonic = before + between / 2;
    real = now;
  }
  clocks_ns_ = monotonic;
  Describe("collops_clocks", 0, "clocks",
           Concat("{\"rank\":", rank_, ",\"process\":", getpid(), ",\"host\":", Quoted(HostName()),
                  ",\"boot\":", Quoted(BootId()), ",\"monotonic_ns\":", monotonic,
                  ",\"realtime_ns\":", real, "}"));
}

int TraceFile::RowOf(const Lane& lane, int thread) {
  const auto found = rows_.find({lane.id, thread});
  if (found != rows_.end()) return found->second;
  std::string& comm = comms_[lane.id];
  if (comm.empty()) {
    // A group that was made again under its name numbers its calls anew.
    const std::string domain = lane.comm_domain.empty() ? "-" : lane.comm_domain;
    std::string name = Quoted(domain);
    const auto used = [&](const auto& other) { return other.second == name; };
    for (int i = 2; std::any_of(comms_.begin(), comms_.end(), used); ++i) {
      name = Quoted(Concat(domain, "#", i));
    }
    comm = name;
  }
  const auto other = rows_.lower_bound({lane.id, 0});
  const bool is_first = other == rows_.end() || other->first.first != lane.id;
  const int row = static_cast<int>(rows_.size()) + 1;
  rows_[{lane.id, thread}] = row;
  Describe("thread_name", row, "name",
           Quoted(Concat(lane.comm_domain.empty() ? "-" : lane.comm_domain, " ", lane.backend,
                         is_first ? "" : Concat(", thread ", thread))));
  return row;
}

Status TraceFile::Add(const Lane& lane, int thread, const Event& event) {
  const int row = RowOf(lane, thread);
  BeginLine();
  text_ += std::string("{\"name\":\"") + event.name + "\",\"cat\":\"" + event.category +
           "\",\"ph\":\"" + event.phase + "\",\"pid\":" + std::to_string(rank_ + 1) +
           ",\"tid\":" + std::to_string(row) + ",\"ts\":" + Microseconds(event.begin_ns);
  if (event.phase == 'X') {
    text_ += ",\"dur\":" + Microseconds(event.end_ns - event.begin_ns);
  } else {
    text_ += ",\"s\":\"t\"";
  }
  text_ += ",\"args\":{\"comm\":" + comms_[lane.id];
  if (!event.args.empty()) text_ += "," + event.args;
  text_ += "}}";
  const bool due = text_.size() >= kBufferBytes || event.end_ns - flushed_ns_ >= kSecondNs;
  return due ? Flush() : Ok();
}

Status TraceFile::Flush() {
  if (text_.empty()) return Ok();
  flushed_ns_ = Now();
  if (flushed_ns_ - clocks_ns_ >= kClocksNs) AddClocks();
  return Write();
}

Status TraceFile::Write() {
  const char* next = text_.data();
  size_t left = text_.size();
  while (left > 0) {
    const ssize_t written = write(fd_, next, left);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Fail(std::strerror(errno));
    next += written;
    left -= static_cast<size_t>(written);
  }
  written_bytes_ += static_cast<int64_t>(text_.size());
  text_.clear();
  if (written_bytes_ < kMostBytes) return Ok();
  return Fail(Concat("has ", kMostBytes >> 20, " MiB, which is the most that a rank writes"));
}

// What follows a part of a line could not be read.
Status TraceFile::Fail(const std::string& why) {
  text_.clear();
  Release();
  return Error(ERROR_RT_FAIL, name_, ": ", why);
}

void TraceFile::Release() {
  flock(fd_, LOCK_UN);  // a child of fork() may have the descriptor, too
  close(fd_);
  fd_ = -1;
}

Status TraceFile::Close() {
  if (fd_ < 0) return Ok();
  AddClocks();
  text_ += "\n]\n";
  COLLOPS_RETURN_IF_ERROR(Write());
  Release();
  return Ok();
}

}  // namespace collops::recording

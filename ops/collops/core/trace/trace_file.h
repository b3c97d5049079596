#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "collops/core/status.h"
#include "collops/core/trace/event.h"

namespace collops::recording {

// Why ranks cannot write traces into the folder of `path`; empty: they can.
std::string FolderFault(const std::string& path);

// The trace of one rank: events in Chrome's JSON format, one a line. A file that ends without its
// bracket, because the process was ended, can be read as well. Its memory is bounded: it writes
// when 64 KiB or a second have come together. Not thread-safe. Waits for the file system only.
class TraceFile {
 public:
  // Replaces the file of an earlier run. If another process writes that file now, such as the
  // parent of this one, the name gets the number of this process.
  static Status Open(const std::string& path, int rank, std::unique_ptr<TraceFile>* file);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  Status Add(const Lane& lane, int thread, const Event& event);
  Status Flush();
  Status Close();

 private:
  TraceFile(int fd, std::string name, int rank) : fd_(fd), name_(std::move(name)), rank_(rank) {}

  void BeginLine();
  // A line of metadata; `value` is JSON.
  void Describe(const char* what, int row, const char* key, const std::string& value);
  // The clocks of now, by which the files of several hosts are joined.
  void AddClocks();
  int RowOf(const Lane& lane, int thread);
  Status Write();
  Status Fail(const std::string& why);
  void Release();

  int fd_;
  const std::string name_;
  const int rank_;
  std::string text_;  // not yet written
  int64_t written_bytes_ = 0;
  int64_t flushed_ns_ = 0;
  int64_t clocks_ns_ = 0;
  // The row of the picture for the calls that a thread makes of a communicator.
  std::map<std::pair<uint64_t, int>, int> rows_;
  std::map<uint64_t, std::string> comms_;  // by communicator: its name, as JSON
};

}  // namespace collops::recording

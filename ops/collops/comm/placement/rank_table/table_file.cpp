#include "collops/comm/placement/rank_table/table_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace collops::rank_table {
namespace {

// 100,000 ranks take about 15 MB.
constexpr int64_t kMaxBytes = int64_t{64} << 20;

struct OpenFile {
  int descriptor;
  ~OpenFile() {
    if (descriptor >= 0) close(descriptor);
  }
};

// The error that a system call has left in errno.
Status SystemError(const std::string& name) {
  const int error = errno;
  ErrorCode code = ERROR_RT_FAIL;
  if (error == ENOMEM) code = ERROR_OUT_OF_HOST_MEMORY;
  for (const int of_path : {ENOENT, ENOTDIR, EACCES, EPERM, ELOOP, ENAMETOOLONG}) {
    if (error == of_path) code = ERROR_INVALID_PARAM;
  }
  return Error(code, name, ": ", std::strerror(error));
}

Status CheckKind(const std::string& name, const struct stat& info) {
  COLLOPS_CHECK_ARG(S_ISREG(info.st_mode), ERROR_INVALID_PARAM, name, " is not a regular file");
  COLLOPS_CHECK_ARG(info.st_size <= kMaxBytes, ERROR_INVALID_PARAM, name, " has ", info.st_size,
                    " bytes, the limit is ", kMaxBytes);
  return Ok();
}

Status ReadAll(const std::string& name, int descriptor, std::string* text) {
  char bytes[65536];
  text->clear();
  while (true) {
    const ssize_t count = read(descriptor, bytes, sizeof(bytes));
    if (count == 0) return Ok();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(name);
    text->append(bytes, static_cast<size_t>(count));
    // It may have grown since its size was asked.
    COLLOPS_CHECK_ARG(static_cast<int64_t>(text->size()) <= kMaxBytes, ERROR_INVALID_PARAM, name,
                      " has more than ", kMaxBytes, " bytes");
  }
}

}  // namespace

Status CheckTableFile(const std::string& path, const std::string& name) {
  COLLOPS_CHECK_ARG(path.find('\0') == std::string::npos, ERROR_INVALID_PARAM, name,
                    ": the path contains a NUL character");
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return SystemError(name);
  return CheckKind(name, info);
}

Status ReadTableFile(const std::string& path, const std::string& name, std::string* text) {
  // Before it is opened: opening some devices does something.
  COLLOPS_RETURN_IF_ERROR(CheckTableFile(path, name));
  const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (file.descriptor < 0) return SystemError(name);
  // Once more: it may have been replaced in between.
  struct stat info = {};
  if (fstat(file.descriptor, &info) != 0) return SystemError(name);
  COLLOPS_RETURN_IF_ERROR(CheckKind(name, info));
  return ReadAll(name, file.descriptor, text);
}

}  // namespace collops::rank_table

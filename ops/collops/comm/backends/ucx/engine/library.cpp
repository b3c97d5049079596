#include "collops/comm/backends/ucx/engine/library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collops/comm/backends/ucx/engine/symbols.h"
#include "collops/core/env.h"
#include "collops/core/process/per_process.h"

namespace collops::ucx {
namespace {

constexpr unsigned kLeastMajor = 1;
constexpr unsigned kLeastMinor = 12;
constexpr const char* kSoname = "libucp.so.0";
// In the order of the wheel's own loader, and by its names: the wheel has every library three
// times, and the dynamic loader takes each file for another library.
constexpr const char* kWheelNames[] = {"libucs.so", "libucs_signal.so", "libuct.so", "libucp.so"};

struct Variable {
  const char* name;
  const char* value;
};
// Without it UCX patches functions of libc, for the memory registrations of RDMA.
constexpr Variable kNoMemoryEvents = {"UCX_MEM_EVENTS", "n"};
// UCX takes no signal, writes nothing to standard output, and does not report what its error
// handlers report anyway.
constexpr Variable kQuiet[] = {{"UCX_DEBUG_SIGNO", "0"},
                               {"UCX_HANDLE_ERRORS", "none"},
                               {"UCX_LOG_FILE", "stderr"},
                               {"UCX_LOG_LEVEL", "fatal"},
                               {"UCX_WARN_UNUSED_ENV_VARS", "n"}};

// Environment variables that are set as long as it lives, except those that the user has set.
class Variables {
 public:
  Variables() = default;
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;
  ~Variables() {
    for (const char* name : ours_) unsetenv(name);
  }

  void Set(const Variable& variable) {
    if (std::getenv(variable.name) != nullptr) return;
    ours_.push_back(variable.name);
    setenv(variable.name, variable.value, 0);
  }

 private:
  std::vector<const char*> ours_;
};

struct Opened {
  std::mutex mutex;
  std::string wheel_folder;
  std::unique_ptr<Library> loaded;  // null: not yet
};

PerProcess<Opened> opened;

// Why the last dlopen() or dlsym() failed.
std::string LoaderError() {
  const char* const reason = dlerror();
  return reason == nullptr ? "no reason given" : reason;
}

bool IsRegularFile(const std::string& path) {
  struct stat found;
  return lstat(path.c_str(), &found) == 0 && S_ISREG(found.st_mode);
}

// Elsewhere the names without a number are links, if there are any.
bool IsWheel(const std::string& folder) {
  for (const char* name : kWheelNames) {
    if (!IsRegularFile(folder + "/" + name)) return false;
  }
  return true;
}

// One attempt to open UCX.
class Opening {
 public:
  explicit Opening(std::string wheel_folder) : wheel_folder_(std::move(wheel_folder)) {}

  Status Run(std::unique_ptr<Library>* library) {
    Search();
    COLLOPS_CHECK_ARG(handle_ != nullptr, ERROR_UNSUPPORTED,
                      "backend ucx: UCX cannot be opened: ", reasons_,
                      "; install it with `pip install 'collops[multihost]'`, or name libucp.so.0",
                      " in COLLOPS_UCX_LIBRARY");
    auto found = std::make_unique<Library>();
    found->source = source_;
    found->is_wheel = is_wheel_;
    COLLOPS_RETURN_IF_ERROR(FindFunctions(handle_, &found->api));
    COLLOPS_RETURN_IF_ERROR(Describe(found.get()));
    *library = std::move(found);
    return Ok();
  }

 private:
  void Search() {
    const std::string named = GetVariable("COLLOPS_UCX_LIBRARY");
    if (!named.empty()) return OpenNamed(named);
    handle_ = dlopen(kSoname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle_ != nullptr) {
      source_ = "already loaded in this process";
    } else if (HostHasRdma()) {
      if (!OpenSystem() && !OpenWheel()) return;
    } else if (!OpenWheel() && !OpenSystem()) {
      return;
    }
  }

  void OpenNamed(const std::string& path) {
    source_ = "COLLOPS_UCX_LIBRARY";
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash);
    if (!folder.empty() && IsWheel(folder)) {
      OpenFolder(folder);
    } else {
      // It may be one with RDMA, which needs the memory events.
      Open(path, !HostHasRdma());
    }
  }

  bool OpenSystem() {
    is_wheel_ = false;
    source_ = "the system's";
    return Open(kSoname, !HostHasRdma());
  }

  bool OpenWheel() {
    if (wheel_folder_.empty()) {
      Note("PyPI's libucx is not installed");
      return false;
    }
    source_ = "PyPI's libucx";
    return OpenFolder(wheel_folder_);
  }

  bool OpenFolder(const std::string& folder) {
    is_wheel_ = true;
    for (const char* name : kWheelNames) {
      if (!Open(folder + "/" + name, true)) return false;
    }
    return true;
  }

  bool Open(const std::string& file, bool without_memory_events) {
    Variables variables;
    for (const Variable& variable : kQuiet) variables.Set(variable);
    if (without_memory_events) variables.Set(kNoMemoryEvents);
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) Note(LoaderError());
    return handle_ != nullptr;
  }

  void Note(const std::string& reason) { reasons_ += (reasons_.empty() ? "" : "; ") + reason; }

  static Status Describe(Library* library) {
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(library->api.init_version), &info) != 0) {
      library->path = info.dli_fname;
    }
    library->version = library->api.get_version_string();
    unsigned release = 0;
    library->api.get_version(&library->major, &library->minor, &release);
    COLLOPS_CHECK_ARG(
        library->IsAtLeast(kLeastMajor, kLeastMinor), ERROR_UNSUPPORTED,
        "backend ucx: ", library->path, " is UCX ", library->version, ", it must be ", kLeastMajor,
        ".", kLeastMinor,
        " or newer: `pip install 'collops[multihost]'`, or name another libucp.so.0 in "
        "COLLOPS_UCX_LIBRARY");
    return Ok();
  }

  std::string wheel_folder_;
  std::string source_;
  std::string reasons_;
  bool is_wheel_ = false;
  void* handle_ = nullptr;  // never closed
};

}  // namespace

void SetWheelFolder(const std::string& folder) {
  Opened& state = opened.Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.wheel_folder = folder;
}

Status Load(const Library** library) {
  Opened& state = opened.Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (state.loaded == nullptr)
    COLLOPS_RETURN_IF_ERROR(Opening(state.wheel_folder).Run(&state.loaded));
  *library = state.loaded.get();
  return Ok();
}

bool HostHasRdma() {
  DIR* const folder = opendir("/sys/class/infiniband");
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(folder)) found = found || entry->d_name[0] != '.';
  closedir(folder);
  return found;
}

}  // namespace collops::ucx

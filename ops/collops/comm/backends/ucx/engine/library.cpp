#include "collops/comm/backends/ucx/engine/library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "collops/core/env.h"
#include "collops/core/process/per_process.h"

namespace collops::ucx {
namespace {

// Looks functions up, and keeps the name of the first one that is missing.
class Finder {
 public:
  explicit Finder(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* symbol, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (*function == nullptr && missing_ == nullptr) missing_ = symbol;
  }

  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

void FindOfProcess(Finder* finder, Api* api) {
  finder->Find("ucp_get_version", &api->get_version);
  finder->Find("ucp_get_version_string", &api->get_version_string);
  finder->Find("ucs_status_string", &api->status_string);
  finder->Find("ucp_config_read", &api->config_read);
  finder->Find("ucp_config_modify", &api->config_modify);
  finder->Find("ucp_config_release", &api->config_release);
  finder->Find("ucp_init_version", &api->init_version);
  finder->Find("ucp_context_print_info", &api->context_print_info);
  finder->Find("ucp_cleanup", &api->cleanup);
}

void FindOfWorker(Finder* finder, Api* api) {
  finder->Find("ucp_worker_create", &api->worker_create);
  finder->Find("ucp_worker_destroy", &api->worker_destroy);
  finder->Find("ucp_worker_get_address", &api->worker_get_address);
  finder->Find("ucp_worker_release_address", &api->worker_release_address);
  finder->Find("ucp_worker_progress", &api->worker_progress);
  finder->Find("ucp_worker_get_efd", &api->worker_get_efd);
  finder->Find("ucp_worker_arm", &api->worker_arm);
  finder->Find("ucp_ep_create", &api->endpoint_create);
  finder->Find("ucp_ep_flush_nbx", &api->endpoint_flush);
  finder->Find("ucp_ep_close_nbx", &api->endpoint_close);
}

void FindOfRequests(Finder* finder, Api* api) {
  finder->Find("ucp_tag_send_nbx", &api->tag_send);
  finder->Find("ucp_tag_recv_nbx", &api->tag_receive);
  finder->Find("ucp_tag_recv_request_test", &api->receive_test);
  finder->Find("ucp_request_check_status", &api->request_check_status);
  finder->Find("ucp_request_cancel", &api->request_cancel);
  finder->Find("ucp_request_free", &api->request_free);
}

}  // namespace

Status FindFunctions(void* handle, Api* api) {
  Finder finder(handle);
  FindOfProcess(&finder, api);
  FindOfWorker(&finder, api);
  FindOfRequests(&finder, api);
  COLLOPS_CHECK_ARG(finder.missing() == nullptr, ERROR_UNSUPPORTED,
                    "backend ucx: this UCX has no function ", finder.missing(),
                    ": install one of 1.12 or newer, e.g. with `pip install 'collops[multihost]'`");
  return Ok();
}

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

namespace {

// Later releases take a context of this one; its functions are what we call.
constexpr unsigned kApiMajor = 1;
constexpr unsigned kApiMinor = 12;

struct Setting {
  const char* name;  // with "UCX_" before it, the variable of a user who wants another value
  const char* value;
};
// The ranks of one host use shm, and the tensors lie in host memory. The name of a transport that
// a library does not have is no error in a list of what to leave out.
constexpr Setting kSettings[] = {{"TLS", "^sm,cuda,rocm,ze"}, {"KEEPALIVE_INTERVAL", "1s"}};
// A connection that is idle and whose other host is silent ends after 3 to 4 seconds. Releases
// before 1.22 read these from the environment alone. There is no TCP_USER_TIMEOUT, which would also
// end a connection to a rank that is stopped and reads nothing: the hosts' connections notice that
// a host is lost while data is on its way to it.
constexpr Setting kTcpSettings[] = {
    {"TCP_KEEPIDLE", "1s"}, {"TCP_KEEPINTVL", "1s"}, {"TCP_KEEPCNT", "3"}};

Status Modify(const Library& library, ConfigObject* config, const Setting& setting) {
  if (!GetVariable(Concat("UCX_", setting.name).c_str()).empty()) return Ok();
  const Result result = library.api.config_modify(config, setting.name, setting.value);
  COLLOPS_CHECK_ARG(result == Result::kOk, ERROR_UNSUPPORTED, "backend ucx: UCX ", library.version,
                    " does not take ", setting.name, "=", setting.value, ": ",
                    Explain(library, result));
  return Ok();
}

Status Configure(const Library& library, ConfigObject* config) {
  for (const Setting& setting : kSettings)
    COLLOPS_RETURN_IF_ERROR(Modify(library, config, setting));
  if (!library.IsAtLeast(1, 22)) return Ok();
  for (const Setting& setting : kTcpSettings)
    COLLOPS_RETURN_IF_ERROR(Modify(library, config, setting));
  return Ok();
}

// The user's choice of transports and devices, for a message.
std::string ChosenByUser() {
  std::string text;
  for (const char* name : {"UCX_TLS", "UCX_NET_DEVICES"}) {
    const std::string value = GetVariable(name);
    if (!value.empty()) text += Concat(text.empty() ? " with " : " and ", name, "=", value);
  }
  return text;
}

Status OpenFailed(const Library& library, Result result) {
  const ErrorCode code =
      result == Result::kNoDevice || result == Result::kInvalidParam || !ChosenByUser().empty()
          ? ERROR_UNSUPPORTED
          : ERROR_RT_FAIL;
  return Error(code, "backend ucx: UCX ", library.version, " cannot begin", ChosenByUser(), ": ",
               Explain(library, result), "; UCX_LOG_LEVEL=warn shows UCX's own messages");
}

bool IsRdma(const std::string& transport) {
  static constexpr const char* kNames[] = {"rc_", "dc_", "ud_", "srd", "gga_"};
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](const char* name) { return transport.rfind(name, 0) == 0; });
}

}  // namespace

std::string Explain(const Library& library, Result result) {
  return Concat(library.api.status_string(result), " (", static_cast<int>(result), ")");
}

Status OwnContext::Open(const Library& library, int peers) {
  library_ = &library;
  generation_ = ForkGeneration();
  ConfigObject* config = nullptr;
  const Result read = library.api.config_read(nullptr, nullptr, &config);
  if (read != Result::kOk) return OpenFailed(library, read);
  const Status configured = Configure(library, config);
  Result result = Result::kOk;
  if (configured.ok()) {
    ContextParams params = {};
    params.field_mask = kParamFeatures | kParamEstimatedNumEps;
    params.features = kFeatureTag | kFeatureWakeup;
    params.estimated_num_eps = static_cast<size_t>(std::max(peers, 1));
    result = library.api.init_version(kApiMajor, kApiMinor, &params, config, &handle_);
  }
  library.api.config_release(config);
  COLLOPS_RETURN_IF_ERROR(configured);
  if (result == Result::kOk) return Ok();
  handle_ = nullptr;
  return OpenFailed(library, result);
}

void OwnContext::Close() {
  if (IsMine()) library_->api.cleanup(handle_);
  handle_ = nullptr;
}

// UCX prints a line for each: "resource 1 : md 1 dev 1 flags -- tcp/eth0".
std::vector<std::string> OwnContext::Transports() const {
  std::vector<std::string> transports;
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const stream = open_memstream(&text, &bytes);
  if (stream == nullptr) return transports;
  library_->api.context_print_info(handle_, stream);
  std::fclose(stream);
  std::istringstream lines(std::string(text, bytes));
  std::free(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string hash, kind, word, last;
    words >> hash >> kind;
    while (words >> word) last = word;
    if (kind == "resource" && last.find('/') != std::string::npos) transports.push_back(last);
  }
  return transports;
}

Status Describe(Report* report) {
  const Library* library = nullptr;
  COLLOPS_RETURN_IF_ERROR(Load(&library));
  OwnContext context;
  COLLOPS_RETURN_IF_ERROR(context.Open(*library, 1));
  *report = {library->version, library->path, library->source, context.Transports()};
  report->is_wheel = library->is_wheel;
  report->host_has_rdma = HostHasRdma();
  const std::vector<std::string>& transports = report->transports;
  report->has_rdma = std::any_of(transports.begin(), transports.end(), IsRdma);
  return Ok();
}

std::string ShowRdma(const Report& report) {
  if (report.has_rdma) return "yes";
  if (!report.host_has_rdma) return "no: this host has no device for it";
  return Concat("no: this UCX ", report.is_wheel ? "has no RDMA (wheel)" : "does not use RDMA here",
                ": install the system's UCX");
}

}  // namespace collops::ucx

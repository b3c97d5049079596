#include "collops/comm/backends/ucx/engine/context.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "collops/core/env.h"

namespace collops::ucx {
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

std::string Show(const Report& report) {
  std::string text = Concat("UCX ", report.version, ", ", report.path, " (", report.source, ")");
  for (size_t i = 0; i < report.transports.size(); ++i) {
    text += (i == 0 ? "; transports " : ", ") + report.transports[i];
  }
  return text + "; RDMA: " + ShowRdma(report);
}

}  // namespace collops::ucx

#include "collops/kernels/cuda/devices.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <random>

#include "collops/core/process/per_process.h"
#include "collops/core/trace/log.h"
#include "collops/kernels/cuda/driver.h"

namespace collops::cuda {
namespace {

struct Retained {
  std::mutex mutex;
  std::map<int, Context> contexts;
};

PerProcess<Retained> retained_here;

}  // namespace

Status PrimaryContext(const DriverApi& api, int device, Context* context) {
  Retained& retained = retained_here.Get();
  const std::lock_guard<std::mutex> lock(retained.mutex);
  const auto found = retained.contexts.find(device);
  if (found != retained.contexts.end()) {
    *context = found->second;
    return Ok();
  }
  Device number = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.device_get(&number, device), "cuDeviceGet"));
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.primary_ctx_retain(context, number), "cuDevicePrimaryCtxRetain"));
  retained.contexts[device] = *context;
  return Ok();
}

Status CurrentDevice(const DriverApi& api, int* device) {
  Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_current(&context), "cuCtxGetCurrent"));
  Device found = 0;
  if (context != nullptr) {
    COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.ctx_get_device(&found), "cuCtxGetDevice"));
  }
  *device = found;
  return Ok();
}

DeviceScope::DeviceScope(const DriverApi& api, int device) : api_(api), status_(Enter(device)) {}

Status DeviceScope::Enter(int device) {
  Context context = nullptr;
  COLLOPS_RETURN_IF_ERROR(PrimaryContext(api_, device, &context));
  Context current = nullptr;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_get_current(&current), "cuCtxGetCurrent"));
  if (current == context) return Ok();
  COLLOPS_RETURN_IF_ERROR(ToStatus(api_, api_.ctx_push_current(context), "cuCtxPushCurrent"));
  pushed_ = true;
  return Ok();
}

DeviceScope::~DeviceScope() {
  Context popped = nullptr;
  if (pushed_) static_cast<void>(api_.ctx_pop_current(&popped));
}

Status OnDevice(const DriverApi& api, int device, const std::function<void()>& step) {
  const DeviceScope scope(api, device);
  if (scope.status().ok()) step();
  return scope.status();
}

void AllowCaptures(const DriverApi& api) {
  CaptureMode mode = CaptureMode::kRelaxed;
  // The caller cannot act on an error of this call.
  static_cast<void>(api.exchange_capture_mode(&mode));
}

namespace {

// Drawn once in a process, and again in a child of fork().
struct ProcessMark {
  uint64_t number = uint64_t{std::random_device()()} << 32 | std::random_device()();
};
PerProcess<ProcessMark> process_mark;

// As nvidia-smi shows it.
std::string ToText(const Uuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

// CUDA maps the streams of a process to so many queues of a GPU if nothing else is set. A kernel
// that cannot begin holds up its queue, perhaps the kernel that it waits for. A rank may have two
// streams.
constexpr int kQueues = 8;
constexpr int kStreamsOfRank = 2;

void WarnOfQueues(const Home& own, const std::vector<Home>& homes) {
  const auto threads = std::count_if(homes.begin(), homes.end(), [&](const Home& other) {
    return InOneProcess(own, other) && OnOneDevice(own, other);
  });
  const char* const set = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const int queues = set == nullptr ? kQueues : std::atoi(set);
  static std::atomic<bool> has_warned{false};
  if (threads == 1 || threads * kStreamsOfRank <= queues || has_warned.exchange(true)) return;
  Log(LogLevel::kWarning, Concat("collops: warning: ", threads, " ranks of this process share ",
                                 ToText(own.uuid), ", whose ", queues,
                                 " queues their streams share: a call may wait for one that cannot "
                                 "begin; set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts"));
}

}  // namespace

Status FindHome(const DriverApi& api, int device, Home* home) {
  *home = {};
  home->process = getpid();
  home->process_mark = process_mark.Get().number;
  int multiprocessors = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api,
      api.device_get_attribute(&multiprocessors, DeviceAttribute::kMultiprocessorCount, device),
      "cuDeviceGetAttribute"));
  home->multiprocessors = multiprocessors;
  return ToStatus(api, api.device_get_uuid(&home->uuid, device), "cuDeviceGetUuid");
}

bool InOneProcess(const Home& a, const Home& b) {
  return a.process == b.process && a.process_mark == b.process_mark;
}

bool OnOneDevice(const Home& a, const Home& b) {
  return std::memcmp(&a.uuid, &b.uuid, sizeof(a.uuid)) == 0;
}

// A driver that does not know the attribute has the daemon's pipe in its place.
bool HasMps(const DriverApi& api, int device) {
  int has = 0;
  const Result asked = api.device_get_attribute(&has, DeviceAttribute::kMpsEnabled, device);
  if (asked == Result::kSuccess) return has != 0;
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  const std::string pipe = Concat(folder == nullptr ? "/tmp/nvidia-mps" : folder, "/control");
  return access(pipe.c_str(), F_OK) == 0;
}

void WarnOfSharing(const DriverApi& api, int device, int rank, const std::vector<Home>& homes) {
  const Home& own = homes[static_cast<size_t>(rank)];
  WarnOfQueues(own, homes);
  std::string others;
  for (size_t r = 0; r < homes.size(); ++r) {
    if (!OnOneDevice(own, homes[r]) || InOneProcess(own, homes[r])) continue;
    if (r < static_cast<size_t>(rank)) return;
    others += Concat(others.empty() ? "" : ", ", r);
  }
  static std::atomic<bool> has_warned{false};
  if (others.empty() || HasMps(api, device) || has_warned.exchange(true)) return;
  Log(LogLevel::kWarning, Concat("collops: warning: rank ", rank, " shares ", ToText(own.uuid),
                                 " with processes (rank ", others, "): ", kWithoutMps));
}

namespace {

// The oldest GPUs that the kernels are compiled for: sm_80.
constexpr int kOldestMajor = 8;

Status Describe(const DriverApi& api, int index, std::string* text) {
  Device device = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(api, api.device_get(&device, index), "cuDeviceGet"));
  char name[256] = {};
  COLLOPS_RETURN_IF_ERROR(
      ToStatus(api, api.device_get_name(name, sizeof(name), device), "cuDeviceGetName"));
  int major = 0;
  int minor = 0;
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api, api.device_get_attribute(&major, DeviceAttribute::kComputeCapabilityMajor, device),
      "cuDeviceGetAttribute"));
  COLLOPS_RETURN_IF_ERROR(ToStatus(
      api, api.device_get_attribute(&minor, DeviceAttribute::kComputeCapabilityMinor, device),
      "cuDeviceGetAttribute"));
  const bool is_old = major < kOldestMajor;
  *text = Concat(is_old ? "no: " : "", name, ", sm_", major, minor,
                 is_old ? " is too old for the GPU kernels, which need sm_80 or newer" : "");
  return Ok();
}

// The GPUs that `index` cannot address, separated by commas.
Status FindUnreachable(const DriverApi& api, int index, int count, std::string* text) {
  for (int peer = 0; peer < count; ++peer) {
    int can = 1;
    if (peer != index) {
      COLLOPS_RETURN_IF_ERROR(
          ToStatus(api, api.device_can_access_peer(&can, index, peer), "cuDeviceCanAccessPeer"));
    }
    if (can == 0) *text += Concat(text->empty() ? "" : ", ", peer);
  }
  return Ok();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> GpuFacts() {
  const DriverApi* api = nullptr;
  const Status loaded = LoadDriver(&api);
  if (!loaded.ok()) return {{"driver", Concat("no: ", loaded.message())}};
  int version = 0;
  int count = 0;
  static_cast<void>(api->driver_get_version(&version));  // LoadDriver() has asked both before
  static_cast<void>(api->device_get_count(&count));
  std::vector<std::pair<std::string, std::string>> facts = {
      {"driver", Concat("CUDA ", version / 1000, ".", version / 10 % 100)},
      {"GPUs", Concat(count)}};
  for (int index = 0; index < count; ++index) {
    std::string text;
    const Status described = Describe(*api, index, &text);
    facts.emplace_back(Concat("GPU ", index),
                       described.ok() ? text : Concat("no: ", described.message()));
  }
  if (count > 0) {
    facts.emplace_back("ranks that are processes of one GPU",
                       HasMps(*api, 0) ? "NVIDIA MPS runs" : Concat("without MPS ", kWithoutMps));
  }
  bool all = true;
  for (int index = 0; index < count; ++index) {
    std::string others;
    const Status asked = FindUnreachable(*api, index, count, &others);
    if (asked.ok() && others.empty()) continue;
    all = false;
    facts.emplace_back(Concat("GPU ", index, "'s peers"),
                       asked.ok() ? Concat("no: it cannot address GPU ", others,
                                           ", so backend cuda does not join these: use nccl")
                                  : Concat("no: ", asked.message()));
  }
  if (all && count > 1) facts.emplace_back("peers", "all GPUs can address each other's memory");
  return facts;
}

}  // namespace collops::cuda

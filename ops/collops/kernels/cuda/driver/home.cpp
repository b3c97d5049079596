#include "collops/kernels/cuda/driver/home.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>

#include "collops/core/process/per_process.h"
#include "collops/core/trace/log.h"
#include "collops/kernels/cuda/driver/error.h"

namespace collops::cuda {
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

}  // namespace collops::cuda

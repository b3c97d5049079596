#include "collops/kernels/cuda/driver/gpu_facts.h"

#include "collops/kernels/cuda/driver/api.h"
#include "collops/kernels/cuda/driver/error.h"
#include "collops/kernels/cuda/driver/home.h"

namespace collops::cuda {
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

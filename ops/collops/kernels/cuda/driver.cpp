#include "collops/kernels/cuda/driver.h"

#include "collops/core/process/per_process.h"
#include "collops/core/process/shared_library.h"

namespace collops::cuda {
namespace {

// The number that cuDriverGetVersion returns for a driver of CUDA 12.0.
constexpr int kOldestDriver = 12000;

void FindDevices(SharedLibrary* library, DriverApi* api) {
  library->Find("cuInit", &api->init);
  library->Find("cuDriverGetVersion", &api->driver_get_version);
  library->Find("cuGetErrorName", &api->get_error_name);
  library->Find("cuGetErrorString", &api->get_error_string);
  library->Find("cuDeviceGetCount", &api->device_get_count);
  library->Find("cuDeviceGet", &api->device_get);
  library->Find("cuDeviceGetName", &api->device_get_name);
  library->Find("cuDeviceGetUuid_v2", &api->device_get_uuid);
  library->Find("cuDeviceGetAttribute", &api->device_get_attribute);
  library->Find("cuDeviceCanAccessPeer", &api->device_can_access_peer);
  library->Find("cuDevicePrimaryCtxRetain", &api->primary_ctx_retain);
  library->Find("cuCtxPushCurrent_v2", &api->ctx_push_current);
  library->Find("cuCtxPopCurrent_v2", &api->ctx_pop_current);
  library->Find("cuCtxGetCurrent", &api->ctx_get_current);
  library->Find("cuCtxGetDevice", &api->ctx_get_device);
  library->Find("cuCtxEnablePeerAccess", &api->ctx_enable_peer_access);
  library->Find("cuCtxGetStreamPriorityRange", &api->ctx_get_stream_priority_range);
}

void FindMemory(SharedLibrary* library, DriverApi* api) {
  library->Find("cuMemAlloc_v2", &api->mem_alloc);
  library->Find("cuMemFree_v2", &api->mem_free);
  library->Find("cuMemHostAlloc", &api->mem_host_alloc);
  library->Find("cuMemHostGetDevicePointer_v2", &api->mem_host_get_device_pointer);
  library->Find("cuMemcpyAsync", &api->memcpy_async);
  library->Find("cuMemcpyHtoDAsync_v2", &api->memcpy_htod_async);
  library->Find("cuMemcpyDtoHAsync_v2", &api->memcpy_dtoh_async);
  library->Find("cuMemsetD8Async", &api->memset_d8_async);
  library->Find("cuMemsetD32Async", &api->memset_d32_async);
}

void FindSharedMemory(SharedLibrary* library, DriverApi* api) {
  library->Find("cuIpcGetMemHandle", &api->ipc_get_mem_handle);
  library->Find("cuIpcOpenMemHandle_v2", &api->ipc_open_mem_handle);
}

void FindStreams(SharedLibrary* library, DriverApi* api) {
  library->Find("cuStreamCreate", &api->stream_create);
  library->Find("cuStreamCreateWithPriority", &api->stream_create_with_priority);
  library->Find("cuStreamDestroy_v2", &api->stream_destroy);
  library->Find("cuStreamSynchronize", &api->stream_synchronize);
  library->Find("cuStreamWaitEvent", &api->stream_wait_event);
  library->Find("cuStreamIsCapturing", &api->stream_is_capturing);
  library->Find("cuStreamGetCaptureInfo_v2", &api->stream_get_capture_info);
  library->Find("cuStreamBeginCapture_v2", &api->stream_begin_capture);
  library->Find("cuStreamEndCapture", &api->stream_end_capture);
  library->Find("cuThreadExchangeStreamCaptureMode", &api->exchange_capture_mode);
  library->Find("cuEventCreate", &api->event_create);
  library->Find("cuEventRecord", &api->event_record);
  library->Find("cuEventQuery", &api->event_query);
  library->Find("cuEventElapsedTime", &api->event_elapsed_time);
  library->Find("cuEventDestroy_v2", &api->event_destroy);
  library->Find("cuUserObjectCreate", &api->user_object_create);
  library->Find("cuGraphRetainUserObject", &api->graph_retain_user_object);
  library->Find("cuGraphInstantiateWithFlags", &api->graph_instantiate);
  library->Find("cuGraphLaunch", &api->graph_launch);
  library->Find("cuGraphExecDestroy", &api->graph_exec_destroy);
  library->Find("cuGraphDestroy", &api->graph_destroy);
}

void FindKernels(SharedLibrary* library, DriverApi* api) {
  library->Find("cuModuleLoadData", &api->module_load_data);
  library->Find("cuModuleUnload", &api->module_unload);
  library->Find("cuModuleGetFunction", &api->module_get_function);
  library->Find("cuOccupancyMaxActiveBlocksPerMultiprocessor", &api->occupancy_max_active_blocks);
  library->Find("cuLaunchKernel", &api->launch_kernel);
  library->FindIfThere("cuFuncLoad", &api->func_load);
}

struct LoadedDriver {
  DriverApi api = {};
  Status status;

  LoadedDriver() {
    SharedLibrary library("CUDA's driver", "libcuda.so.1");
    FindDevices(&library, &api);
    FindMemory(&library, &api);
    FindSharedMemory(&library, &api);
    FindStreams(&library, &api);
    FindKernels(&library, &api);
    status = library.status().ok() ? Begin() : library.status();
  }

  // What the driver itself says; ERROR_UNSUPPORTED, as all reasons why there is no GPU.
  Status Begin() const {
    Status begun = ToStatus(api, api.init(0), "cuInit");
    int version = 0;
    if (begun.ok()) begun = ToStatus(api, api.driver_get_version(&version), "cuDriverGetVersion");
    COLLOPS_CHECK_ARG(begun.ok(), ERROR_UNSUPPORTED, "CUDA's driver: ", begun.message());
    COLLOPS_CHECK_ARG(version >= kOldestDriver, ERROR_UNSUPPORTED, "CUDA's driver is one of CUDA ",
                      version / 1000, ".", version % 1000 / 10, ": 12.0 (R525) or newer is needed");
    int count = 0;
    begun = ToStatus(api, api.device_get_count(&count), "cuDeviceGetCount");
    COLLOPS_CHECK_ARG(begun.ok() && count > 0, ERROR_UNSUPPORTED, "CUDA's driver has no GPU",
                      begun.ok() ? "" : ": ", begun.message());
    return Ok();
  }
};

// A child of fork() cannot use what its parent has initialised, and asks the driver itself.
PerProcess<LoadedDriver> driver_here;

}  // namespace

Status LoadDriver(const DriverApi** api) {
  const LoadedDriver& loaded = driver_here.Get();
  *api = &loaded.api;
  return loaded.status;
}

namespace {

ErrorCode CodeOf(Result result) {
  if (result == Result::kOutOfMemory) return ERROR_OUT_OF_DEVICE_MEMORY;
  if (result == Result::kInvalidDevice) return ERROR_INVALID_PARAM;
  if (result == Result::kNotSupported || result == Result::kNoBinaryForGpu) {
    return ERROR_UNSUPPORTED;
  }
  return ERROR_RT_FAIL;
}

// The driver leaves the pointer null for a number that it does not know.
const char* Ask(Result (*ask)(Result, const char**), Result result, const char* otherwise) {
  const char* text = nullptr;
  static_cast<void>(ask(result, &text));
  return text == nullptr ? otherwise : text;
}

}  // namespace

Status ToStatus(const DriverApi& api, Result result, const char* call) {
  if (result == Result::kSuccess) return Ok();
  return Error(CodeOf(result), call, " returned ", static_cast<int32_t>(result), " (",
               Ask(api.get_error_name, result, "a CUresult without a name"),
               "): ", Ask(api.get_error_string, result, "the driver has no text for it"));
}

Status Copy(const DriverApi& api, void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return Ok();
  return ToStatus(
      api, api.memcpy_async(AddressOf(to), AddressOf(from), static_cast<size_t>(bytes), stream),
      "cuMemcpyAsync");
}

Status SetZero(const DriverApi& api, void* data, int64_t bytes, Stream stream) {
  if (bytes == 0) return Ok();
  return ToStatus(api, api.memset_d8_async(AddressOf(data), 0, static_cast<size_t>(bytes), stream),
                  "cuMemsetD8Async");
}

}  // namespace collops::cuda

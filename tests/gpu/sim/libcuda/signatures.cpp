// The simulated libcuda has every function that collops looks up, with the signature that collops
// calls, which tests/gpu/declarations compares with cuda.h.
#include <type_traits>

#include "collops/kernels/cuda/driver.h"

using namespace collops::cuda;

// The members of DriverApi, in their order, and the functions' names.
// clang-format off
#define COLLOPS_SIM_FUNCTIONS(_) \
  _(init, cuInit) _(driver_get_version, cuDriverGetVersion) _(get_error_name, cuGetErrorName)    \
  _(get_error_string, cuGetErrorString) _(device_get_count, cuDeviceGetCount)                    \
  _(device_get, cuDeviceGet) _(device_get_name, cuDeviceGetName)                                 \
  _(device_get_uuid, cuDeviceGetUuid_v2) _(device_get_attribute, cuDeviceGetAttribute)           \
  _(device_can_access_peer, cuDeviceCanAccessPeer)                                               \
  _(primary_ctx_retain, cuDevicePrimaryCtxRetain) _(ctx_push_current, cuCtxPushCurrent_v2)       \
  _(ctx_pop_current, cuCtxPopCurrent_v2) _(ctx_get_current, cuCtxGetCurrent)                     \
  _(ctx_get_device, cuCtxGetDevice) _(ctx_enable_peer_access, cuCtxEnablePeerAccess)             \
  _(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange) _(mem_alloc, cuMemAlloc_v2)      \
  _(mem_free, cuMemFree_v2) _(mem_host_alloc, cuMemHostAlloc)                                    \
  _(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2) _(memcpy_async, cuMemcpyAsync)    \
  _(memcpy_htod_async, cuMemcpyHtoDAsync_v2) _(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)          \
  _(memset_d8_async, cuMemsetD8Async) _(memset_d32_async, cuMemsetD32Async)                      \
  _(ipc_get_mem_handle, cuIpcGetMemHandle) _(ipc_open_mem_handle, cuIpcOpenMemHandle_v2)         \
  _(stream_create, cuStreamCreate) _(stream_create_with_priority, cuStreamCreateWithPriority)    \
  _(stream_destroy, cuStreamDestroy_v2) _(stream_synchronize, cuStreamSynchronize)               \
  _(stream_wait_event, cuStreamWaitEvent) _(stream_is_capturing, cuStreamIsCapturing)            \
  _(stream_get_capture_info, cuStreamGetCaptureInfo_v2)                                          \
  _(stream_begin_capture, cuStreamBeginCapture_v2) _(stream_end_capture, cuStreamEndCapture)     \
  _(exchange_capture_mode, cuThreadExchangeStreamCaptureMode) _(event_create, cuEventCreate)     \
  _(event_record, cuEventRecord) _(event_query, cuEventQuery)                                    \
  _(event_elapsed_time, cuEventElapsedTime) _(event_destroy, cuEventDestroy_v2)                  \
  _(user_object_create, cuUserObjectCreate) _(graph_retain_user_object, cuGraphRetainUserObject) \
  _(graph_instantiate, cuGraphInstantiateWithFlags) _(graph_launch, cuGraphLaunch)               \
  _(graph_exec_destroy, cuGraphExecDestroy) _(graph_destroy, cuGraphDestroy)                     \
  _(module_load_data, cuModuleLoadData) _(module_unload, cuModuleUnload)                         \
  _(module_get_function, cuModuleGetFunction)                                                    \
  _(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor)                    \
  _(launch_kernel, cuLaunchKernel) _(func_load, cuFuncLoad)
// clang-format on

#define COLLOPS_SIM_DECLARE(member, name) std::remove_pointer_t<decltype(DriverApi::member)> name;
extern "C" {
COLLOPS_SIM_FUNCTIONS(COLLOPS_SIM_DECLARE)
}

namespace collops_sim {

// A function that is missing, or whose type differs, is an error here.
#define COLLOPS_SIM_NAME(member, name) name,
extern const DriverApi kSimulated;
const DriverApi kSimulated = {COLLOPS_SIM_FUNCTIONS(COLLOPS_SIM_NAME)};

}  // namespace collops_sim

#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/core/status.h"

namespace collops::cuda {

// CUDA's types and numbers, declared here as cuda.h publishes them; a test compares these
// declarations with that header. C enumerations have four bytes.

using Device = int32_t;
using Context = void*;
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;
using GraphNode = void*;
using Module = void*;
using Function = void*;
using UserObject = void*;
using DevicePointer = uint64_t;
using HostFunction = void (*)(void* user_data);

// The streams that no one creates. Here a stream is never null, which means kLegacyStream or
// kPerThreadStream by how a program was compiled.
inline Stream LegacyStream() {
  return reinterpret_cast<Stream>(uintptr_t{1});
}
inline Stream PerThreadStream() {
  return reinterpret_cast<Stream>(uintptr_t{2});
}

// CUresult: those that are looked at here. The driver names the others itself.
enum class Result : int32_t {
  kSuccess = 0,
  kOutOfMemory = 2,
  kInvalidDevice = 101,
  kNoBinaryForGpu = 209,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
  kNotSupported = 801,
  kStreamCaptureImplicit = 906,
};

// CUdevice_attribute.
enum class DeviceAttribute : int32_t {
  kMultiprocessorCount = 16,
  kL2CacheBytes = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMpsEnabled = 133,
};

// CUipcMemHandle and CUuuid.
struct IpcMemoryHandle {
  char reserved[64];
};
struct Uuid {
  char bytes[16];
};

// CUstreamCaptureStatus and CUstreamCaptureMode.
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class CaptureMode : int32_t { kThreadLocal = 1, kRelaxed = 2 };

// Flags of calls.
constexpr uint32_t kStreamNonBlocking = 1;
constexpr uint32_t kEventDisableTiming = 2;
constexpr uint32_t kHostAllocPortable = 1;
constexpr uint32_t kHostAllocDeviceMap = 2;
constexpr uint32_t kIpcLazyPeerAccess = 1;
constexpr uint32_t kUserObjectNoDestructorSync = 1;
constexpr uint32_t kGraphUserObjectMove = 1;

// The functions of libcuda that are used here, looked up by the names that the library of CUDA 12.0
// (R525) has: with their versions, such as cuMemAlloc_v2. Those that may be null are said to be.
struct DriverApi {
  Result (*init)(unsigned int flags);
  Result (*driver_get_version)(int* version);
  Result (*get_error_name)(Result error, const char** name);
  Result (*get_error_string)(Result error, const char** text);

  Result (*device_get_count)(int* count);
  Result (*device_get)(Device* device, int ordinal);
  Result (*device_get_name)(char* name, int bytes, Device device);
  Result (*device_get_uuid)(Uuid* uuid, Device device);
  Result (*device_get_attribute)(int* value, DeviceAttribute attribute, Device device);
  Result (*device_can_access_peer)(int* can, Device device, Device peer);

  Result (*primary_ctx_retain)(Context* context, Device device);
  Result (*ctx_push_current)(Context context);
  Result (*ctx_pop_current)(Context* context);
  Result (*ctx_get_current)(Context* context);
  Result (*ctx_get_device)(Device* device);
  Result (*ctx_enable_peer_access)(Context peer, unsigned int flags);
  Result (*ctx_get_stream_priority_range)(int* least, int* greatest);

  Result (*mem_alloc)(DevicePointer* pointer, size_t bytes);
  Result (*mem_free)(DevicePointer pointer);
  Result (*mem_host_alloc)(void** pointer, size_t bytes, unsigned int flags);
  Result (*mem_host_get_device_pointer)(DevicePointer* pointer, void* host, unsigned int flags);
  Result (*memcpy_async)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
  Result (*memcpy_htod_async)(DevicePointer to, const void* from, size_t bytes, Stream stream);
  Result (*memcpy_dtoh_async)(void* to, DevicePointer from, size_t bytes, Stream stream);
  Result (*memset_d8_async)(DevicePointer to, unsigned char value, size_t count, Stream stream);
  Result (*memset_d32_async)(DevicePointer to, unsigned int value, size_t count, Stream stream);

  Result (*ipc_get_mem_handle)(IpcMemoryHandle* handle, DevicePointer pointer);
  Result (*ipc_open_mem_handle)(DevicePointer* pointer, IpcMemoryHandle handle, unsigned int flags);

  Result (*stream_create)(Stream* stream, unsigned int flags);
  Result (*stream_create_with_priority)(Stream* stream, unsigned int flags, int priority);
  Result (*stream_destroy)(Stream stream);
  Result (*stream_synchronize)(Stream stream);
  Result (*stream_wait_event)(Stream stream, Event event, unsigned int flags);
  Result (*stream_is_capturing)(Stream stream, CaptureStatus* status);
  // Graph and nodes are those of the capture; each argument behind `status` may be null.
  Result (*stream_get_capture_info)(Stream stream, CaptureStatus* status, uint64_t* id,
                                    Graph* graph, const GraphNode** nodes, size_t* num_nodes);
  Result (*stream_begin_capture)(Stream stream, CaptureMode mode);
  Result (*stream_end_capture)(Stream stream, Graph* graph);
  Result (*exchange_capture_mode)(CaptureMode* mode);

  Result (*event_create)(Event* event, unsigned int flags);
  Result (*event_record)(Event event, Stream stream);
  Result (*event_query)(Event event);
  Result (*event_elapsed_time)(float* milliseconds, Event begin, Event end);
  Result (*event_destroy)(Event event);

  Result (*user_object_create)(UserObject* object, void* pointer, HostFunction destroy,
                               unsigned int references, unsigned int flags);
  Result (*graph_retain_user_object)(Graph graph, UserObject object, unsigned int count,
                                     unsigned int flags);
  Result (*graph_instantiate)(GraphExec* executable, Graph graph, unsigned long long flags);
  Result (*graph_launch)(GraphExec executable, Stream stream);
  Result (*graph_exec_destroy)(GraphExec executable);
  Result (*graph_destroy)(Graph graph);

  Result (*module_load_data)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_get_function)(Function* function, Module module, const char* name);
  Result (*occupancy_max_active_blocks)(int* blocks, Function function, int block_threads,
                                        size_t dynamic_shared_bytes);
  Result (*launch_kernel)(Function function, unsigned int grid_x, unsigned int grid_y,
                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                          unsigned int block_z, unsigned int shared_bytes, Stream stream,
                          void** args, void** extra);
  // Loads a function whose loading the driver has put off. May be null (before CUDA 12.4).
  Result (*func_load)(Function function);
};

// The functions, after cuInit. libcuda.so.1 is opened once in a process and never closed. An error
// is ERROR_UNSUPPORTED with the reason: no library, a missing function, no device, a driver that
// refuses. Thread-safe.
Status LoadDriver(const DriverApi** api);

// Turns a result of the driver into a Status: Ok, or an error code with the function's name
// (`call`), the number, and the driver's name and text of it.
Status ToStatus(const DriverApi& api, Result result, const char* call);

inline DevicePointer AddressOf(const void* data) {
  return reinterpret_cast<DevicePointer>(data);
}

// Puts a copy inside one device, or zeros, on the stream; nothing for no bytes.
Status Copy(const DriverApi& api, void* to, const void* from, int64_t bytes, Stream stream);
Status SetZero(const DriverApi& api, void* data, int64_t bytes, Stream stream);

}  // namespace collops::cuda

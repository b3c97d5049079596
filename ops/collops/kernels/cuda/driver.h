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
using AllocationHandle = uint64_t;
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
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kPeerAccessUnsupported = 217,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kPeerAccessAlreadyEnabled = 704,
  kContextIsDestroyed = 709,
  kLaunchFailed = 719,
  kNotPermitted = 800,
  kNotSupported = 801,
  kStreamCaptureUnsupported = 900,
  kStreamCaptureInvalidated = 901,
  kStreamCaptureImplicit = 906,
  kUnknown = 999,
};

// CUdevice_attribute.
enum class DeviceAttribute : int32_t {
  kMultiprocessorCount = 16,
  kIntegrated = 18,
  kComputeMode = 20,
  kPciBusId = 33,
  kPciDeviceId = 34,
  kL2CacheBytes = 38,
  kUnifiedAddressing = 41,
  kPciDomainId = 50,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kManagedMemory = 83,
  kHostNativeAtomics = 86,
  kCooperativeLaunch = 95,
  kMaxSharedBytesPerBlock = 97,
  kVirtualMemory = 102,
  kFileDescriptorHandles = 103,
  kMemoryPools = 115,
  kDmaBuf = 124,
  kIpcEvents = 125,
  kFabricHandles = 128,
  kMulticast = 132,
  kMpsEnabled = 133,
};

// CUpointer_attribute.
enum class PointerAttribute : int32_t {
  kContext = 1,
  kMemoryType = 2,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsLegacyIpcCapable = 10,
  kRangeStart = 11,
  kRangeBytes = 12,
  kAllowedHandleTypes = 14,
};

// CUmemorytype, as the attribute kMemoryType returns it.
enum class MemoryType : int32_t { kHost = 1, kDevice = 2 };

// CUmemAllocationType, CUmemAllocationHandleType, CUmemLocationType, CUmemAccess_flags and
// CUmemAllocationGranularity_flags.
enum class AllocationType : int32_t { kPinned = 1 };
enum class HandleType : int32_t { kNone = 0, kFileDescriptor = 1, kFabric = 8 };
enum class LocationType : int32_t { kDevice = 1, kHost = 2 };
enum class AccessRights : int32_t { kNone = 0, kRead = 1, kReadWrite = 3 };
enum class Granularity : int32_t { kMinimum = 0, kRecommended = 1 };

// CUmemLocation, CUmemAllocationProp and CUmemAccessDesc.
struct Location {
  LocationType type;
  int32_t id;
};
struct AllocationProperties {
  AllocationType type;
  HandleType requested_handle_types;
  Location location;
  void* win32_metadata;
  uint8_t compression;
  uint8_t gpu_direct_rdma;
  uint16_t usage;
  uint8_t reserved[4];
};
struct AccessDescription {
  Location location;
  AccessRights rights;
};

// CUipcMemHandle and CUuuid.
struct IpcMemoryHandle {
  char reserved[64];
};
struct Uuid {
  char bytes[16];
};

// CUlaunchConfig, with its attributes.
enum class LaunchAttributeId : int32_t { kCooperative = 2 };
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  alignas(8) char value[64];  // of kCooperative: an int of 1
};
struct LaunchConfig {
  uint32_t grid_x, grid_y, grid_z;
  uint32_t block_x, block_y, block_z;
  uint32_t shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  uint32_t num_attributes;
};

// CUfunction_attribute.
enum class FunctionAttribute : int32_t {
  kMaxThreadsPerBlock = 0,
  kLocalBytes = 3,
  kRegisters = 4,
  kMaxDynamicSharedBytes = 8,
};

// CUstreamCaptureStatus and CUstreamCaptureMode.
enum class CaptureStatus : int32_t { kNone = 0, kActive = 1, kInvalidated = 2 };
enum class CaptureMode : int32_t { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

// Flags of calls.
constexpr uint32_t kStreamNonBlocking = 1;
constexpr uint32_t kEventDisableTiming = 2;
constexpr uint32_t kEventInterprocess = 4;
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
  Result (*device_get_pci_bus_id)(char* id, int bytes, Device device);
  Result (*device_can_access_peer)(int* can, Device device, Device peer);

  Result (*primary_ctx_retain)(Context* context, Device device);
  Result (*primary_ctx_release)(Device device);
  Result (*ctx_push_current)(Context context);
  Result (*ctx_pop_current)(Context* context);
  Result (*ctx_get_current)(Context* context);
  Result (*ctx_get_device)(Device* device);
  Result (*ctx_synchronize)();
  Result (*ctx_enable_peer_access)(Context peer, unsigned int flags);
  Result (*ctx_get_stream_priority_range)(int* least, int* greatest);

  Result (*mem_get_info)(size_t* free_bytes, size_t* total_bytes);
  Result (*mem_alloc)(DevicePointer* pointer, size_t bytes);
  Result (*mem_free)(DevicePointer pointer);
  Result (*mem_host_alloc)(void** pointer, size_t bytes, unsigned int flags);
  Result (*mem_free_host)(void* pointer);
  Result (*mem_host_get_device_pointer)(DevicePointer* pointer, void* host, unsigned int flags);
  Result (*mem_get_address_range)(DevicePointer* base, size_t* bytes, DevicePointer pointer);
  Result (*pointer_get_attribute)(void* data, PointerAttribute attribute, DevicePointer pointer);
  // Unlike the one above, no error for memory that CUDA does not know.
  Result (*pointer_get_attributes)(unsigned int count, PointerAttribute* attributes, void** data,
                                   DevicePointer pointer);
  Result (*memcpy_async)(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
  Result (*memcpy_htod_async)(DevicePointer to, const void* from, size_t bytes, Stream stream);
  Result (*memcpy_dtoh_async)(void* to, DevicePointer from, size_t bytes, Stream stream);
  Result (*memset_d8_async)(DevicePointer to, unsigned char value, size_t count, Stream stream);
  Result (*memset_d32_async)(DevicePointer to, unsigned int value, size_t count, Stream stream);

  Result (*ipc_get_mem_handle)(IpcMemoryHandle* handle, DevicePointer pointer);
  Result (*ipc_open_mem_handle)(DevicePointer* pointer, IpcMemoryHandle handle, unsigned int flags);
  Result (*ipc_close_mem_handle)(DevicePointer pointer);

  Result (*mem_get_allocation_granularity)(size_t* bytes, const AllocationProperties* properties,
                                           Granularity option);
  Result (*mem_create)(AllocationHandle* handle, size_t bytes,
                       const AllocationProperties* properties, unsigned long long flags);
  Result (*mem_release)(AllocationHandle handle);
  Result (*mem_retain_allocation_handle)(AllocationHandle* handle, void* pointer);
  Result (*mem_export)(void* shareable, AllocationHandle handle, HandleType type,
                       unsigned long long flags);
  Result (*mem_import)(AllocationHandle* handle, void* shareable, HandleType type);
  Result (*mem_address_reserve)(DevicePointer* pointer, size_t bytes, size_t alignment,
                                DevicePointer address, unsigned long long flags);
  Result (*mem_address_free)(DevicePointer pointer, size_t bytes);
  Result (*mem_map)(DevicePointer pointer, size_t bytes, size_t offset, AllocationHandle handle,
                    unsigned long long flags);
  Result (*mem_unmap)(DevicePointer pointer, size_t bytes);
  Result (*mem_set_access)(DevicePointer pointer, size_t bytes,
                           const AccessDescription* descriptions, size_t count);

  Result (*stream_create)(Stream* stream, unsigned int flags);
  Result (*stream_create_with_priority)(Stream* stream, unsigned int flags, int priority);
  Result (*stream_destroy)(Stream stream);
  Result (*stream_synchronize)(Stream stream);
  Result (*stream_query)(Stream stream);
  Result (*stream_wait_event)(Stream stream, Event event, unsigned int flags);
  Result (*stream_get_ctx)(Stream stream, Context* context);
  Result (*stream_is_capturing)(Stream stream, CaptureStatus* status);
  // Graph and nodes are those of the capture; each argument behind `status` may be null.
  Result (*stream_get_capture_info)(Stream stream, CaptureStatus* status, uint64_t* id,
                                    Graph* graph, const GraphNode** nodes, size_t* num_nodes);
  Result (*stream_begin_capture)(Stream stream, CaptureMode mode);
  Result (*stream_end_capture)(Stream stream, Graph* graph);
  Result (*exchange_capture_mode)(CaptureMode* mode);
  Result (*launch_host_func)(Stream stream, HostFunction function, void* user_data);

  Result (*event_create)(Event* event, unsigned int flags);
  Result (*event_record)(Event event, Stream stream);
  Result (*event_query)(Event event);
  Result (*event_synchronize)(Event event);
  Result (*event_elapsed_time)(float* milliseconds, Event begin, Event end);
  Result (*event_destroy)(Event event);

  Result (*user_object_create)(UserObject* object, void* pointer, HostFunction destroy,
                               unsigned int references, unsigned int flags);
  Result (*user_object_release)(UserObject object, unsigned int count);
  Result (*graph_retain_user_object)(Graph graph, UserObject object, unsigned int count,
                                     unsigned int flags);
  Result (*graph_instantiate)(GraphExec* executable, Graph graph, unsigned long long flags);
  Result (*graph_launch)(GraphExec executable, Stream stream);
  Result (*graph_exec_destroy)(GraphExec executable);
  Result (*graph_destroy)(Graph graph);

  Result (*module_load_data)(Module* module, const void* image);
  Result (*module_unload)(Module module);
  Result (*module_get_function)(Function* function, Module module, const char* name);
  Result (*func_get_attribute)(int* value, FunctionAttribute attribute, Function function);
  Result (*func_set_attribute)(Function function, FunctionAttribute attribute, int value);
  Result (*occupancy_max_active_blocks)(int* blocks, Function function, int block_threads,
                                        size_t dynamic_shared_bytes);
  Result (*launch_kernel)(Function function, unsigned int grid_x, unsigned int grid_y,
                          unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                          unsigned int block_z, unsigned int shared_bytes, Stream stream,
                          void** args, void** extra);
  Result (*launch_kernel_ex)(const LaunchConfig* config, Function function, void** args,
                             void** extra);
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

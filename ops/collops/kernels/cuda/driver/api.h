#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/core/status.h"
#include "collops/kernels/cuda/driver/types.h"

namespace collops::cuda {

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

}  // namespace collops::cuda

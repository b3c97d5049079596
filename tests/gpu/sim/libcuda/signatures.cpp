// The simulated libcuda has every function that collops looks up, with the signature that collops
// calls, which tests/gpu/declarations compares with cuda.h.
#include "collops/kernels/cuda/driver.h"

using namespace collops::cuda;

extern "C" {

Result cuInit(unsigned int flags);
Result cuDriverGetVersion(int* version);
Result cuGetErrorName(Result error, const char** name);
Result cuGetErrorString(Result error, const char** text);
Result cuDeviceGetCount(int* count);
Result cuDeviceGet(Device* device, int ordinal);
Result cuDeviceGetName(char* name, int bytes, Device device);
Result cuDeviceGetUuid_v2(Uuid* uuid, Device device);
Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, Device device);
Result cuDeviceGetPCIBusId(char* id, int bytes, Device device);
Result cuDeviceCanAccessPeer(int* can, Device device, Device peer);
Result cuDevicePrimaryCtxRetain(Context* context, Device device);
Result cuDevicePrimaryCtxRelease_v2(Device device);
Result cuCtxPushCurrent_v2(Context context);
Result cuCtxPopCurrent_v2(Context* context);
Result cuCtxGetCurrent(Context* context);
Result cuCtxGetDevice(Device* device);
Result cuCtxSynchronize();
Result cuCtxEnablePeerAccess(Context peer, unsigned int flags);
Result cuCtxGetStreamPriorityRange(int* least, int* greatest);
Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes);
Result cuMemAlloc_v2(DevicePointer* pointer, size_t bytes);
Result cuMemFree_v2(DevicePointer pointer);
Result cuMemHostAlloc(void** pointer, size_t bytes, unsigned int flags);
Result cuMemFreeHost(void* pointer);
Result cuMemHostGetDevicePointer_v2(DevicePointer* pointer, void* host, unsigned int flags);
Result cuMemGetAddressRange_v2(DevicePointer* base, size_t* bytes, DevicePointer pointer);
Result cuPointerGetAttribute(void* data, PointerAttribute attribute, DevicePointer pointer);
Result cuPointerGetAttributes(unsigned int count, PointerAttribute* attributes, void** data,
                              DevicePointer pointer);
Result cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t bytes, Stream stream);
Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Stream stream);
Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Stream stream);
Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t count, Stream stream);
Result cuMemsetD32Async(DevicePointer to, unsigned int value, size_t count, Stream stream);
Result cuIpcGetMemHandle(IpcMemoryHandle* handle, DevicePointer pointer);
Result cuIpcOpenMemHandle_v2(DevicePointer* pointer, IpcMemoryHandle handle, unsigned int flags);
Result cuIpcCloseMemHandle(DevicePointer pointer);
Result cuMemGetAllocationGranularity(size_t* bytes, const AllocationProperties* properties,
                                     Granularity option);
Result cuMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags);
Result cuMemRelease(AllocationHandle handle);
Result cuMemRetainAllocationHandle(AllocationHandle* handle, void* pointer);
Result cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, HandleType type,
                                    unsigned long long flags);
Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, HandleType type);
Result cuMemAddressReserve(DevicePointer* pointer, size_t bytes, size_t alignment,
                           DevicePointer address, unsigned long long flags);
Result cuMemAddressFree(DevicePointer pointer, size_t bytes);
Result cuMemMap(DevicePointer pointer, size_t bytes, size_t offset, AllocationHandle handle,
                unsigned long long flags);
Result cuMemUnmap(DevicePointer pointer, size_t bytes);
Result cuMemSetAccess(DevicePointer pointer, size_t bytes, const AccessDescription* descriptions,
                      size_t count);
Result cuStreamCreate(Stream* stream, unsigned int flags);
Result cuStreamCreateWithPriority(Stream* stream, unsigned int flags, int priority);
Result cuStreamDestroy_v2(Stream stream);
Result cuStreamSynchronize(Stream stream);
Result cuStreamQuery(Stream stream);
Result cuStreamWaitEvent(Stream stream, Event event, unsigned int flags);
Result cuStreamGetCtx(Stream stream, Context* context);
Result cuStreamIsCapturing(Stream stream, CaptureStatus* status);
Result cuStreamGetCaptureInfo_v2(Stream stream, CaptureStatus* status, uint64_t* id, Graph* graph,
                                 const GraphNode** nodes, size_t* num_nodes);
Result cuStreamBeginCapture_v2(Stream stream, CaptureMode mode);
Result cuStreamEndCapture(Stream stream, Graph* graph);
Result cuThreadExchangeStreamCaptureMode(CaptureMode* mode);
Result cuLaunchHostFunc(Stream stream, HostFunction function, void* user_data);
Result cuEventCreate(Event* event, unsigned int flags);
Result cuEventRecord(Event event, Stream stream);
Result cuEventQuery(Event event);
Result cuEventSynchronize(Event event);
Result cuEventElapsedTime(float* milliseconds, Event begin, Event end);
Result cuEventDestroy_v2(Event event);
Result cuUserObjectCreate(UserObject* object, void* pointer, HostFunction destroy,
                          unsigned int references, unsigned int flags);
Result cuUserObjectRelease(UserObject object, unsigned int count);
Result cuGraphRetainUserObject(Graph graph, UserObject object, unsigned int count,
                               unsigned int flags);
Result cuGraphInstantiateWithFlags(GraphExec* executable, Graph graph, unsigned long long flags);
Result cuGraphLaunch(GraphExec executable, Stream stream);
Result cuGraphExecDestroy(GraphExec executable);
Result cuGraphDestroy(Graph graph);
Result cuModuleLoadData(Module* module, const void* image);
Result cuModuleUnload(Module module);
Result cuModuleGetFunction(Function* function, Module module, const char* name);
Result cuFuncGetAttribute(int* value, FunctionAttribute attribute, Function function);
Result cuFuncSetAttribute(Function function, FunctionAttribute attribute, int value);
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function function,
                                                   int block_threads, size_t dynamic_shared_bytes);
Result cuLaunchKernel(Function function, unsigned int grid_x, unsigned int grid_y,
                      unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                      unsigned int block_z, unsigned int shared_bytes, Stream stream, void** args,
                      void** extra);
Result cuLaunchKernelEx(const LaunchConfig* config, Function function, void** args, void** extra);
Result cuFuncLoad(Function function);

}  // extern "C"

namespace collops_sim {

// A function that is missing, or whose type differs, is an error here.
extern const DriverApi kSimulated;
const DriverApi kSimulated = {
    cuInit,
    cuDriverGetVersion,
    cuGetErrorName,
    cuGetErrorString,
    cuDeviceGetCount,
    cuDeviceGet,
    cuDeviceGetName,
    cuDeviceGetUuid_v2,
    cuDeviceGetAttribute,
    cuDeviceGetPCIBusId,
    cuDeviceCanAccessPeer,
    cuDevicePrimaryCtxRetain,
    cuDevicePrimaryCtxRelease_v2,
    cuCtxPushCurrent_v2,
    cuCtxPopCurrent_v2,
    cuCtxGetCurrent,
    cuCtxGetDevice,
    cuCtxSynchronize,
    cuCtxEnablePeerAccess,
    cuCtxGetStreamPriorityRange,
    cuMemGetInfo_v2,
    cuMemAlloc_v2,
    cuMemFree_v2,
    cuMemHostAlloc,
    cuMemFreeHost,
    cuMemHostGetDevicePointer_v2,
    cuMemGetAddressRange_v2,
    cuPointerGetAttribute,
    cuPointerGetAttributes,
    cuMemcpyAsync,
    cuMemcpyHtoDAsync_v2,
    cuMemcpyDtoHAsync_v2,
    cuMemsetD8Async,
    cuMemsetD32Async,
    cuIpcGetMemHandle,
    cuIpcOpenMemHandle_v2,
    cuIpcCloseMemHandle,
    cuMemGetAllocationGranularity,
    cuMemCreate,
    cuMemRelease,
    cuMemRetainAllocationHandle,
    cuMemExportToShareableHandle,
    cuMemImportFromShareableHandle,
    cuMemAddressReserve,
    cuMemAddressFree,
    cuMemMap,
    cuMemUnmap,
    cuMemSetAccess,
    cuStreamCreate,
    cuStreamCreateWithPriority,
    cuStreamDestroy_v2,
    cuStreamSynchronize,
    cuStreamQuery,
    cuStreamWaitEvent,
    cuStreamGetCtx,
    cuStreamIsCapturing,
    cuStreamGetCaptureInfo_v2,
    cuStreamBeginCapture_v2,
    cuStreamEndCapture,
    cuThreadExchangeStreamCaptureMode,
    cuLaunchHostFunc,
    cuEventCreate,
    cuEventRecord,
    cuEventQuery,
    cuEventSynchronize,
    cuEventElapsedTime,
    cuEventDestroy_v2,
    cuUserObjectCreate,
    cuUserObjectRelease,
    cuGraphRetainUserObject,
    cuGraphInstantiateWithFlags,
    cuGraphLaunch,
    cuGraphExecDestroy,
    cuGraphDestroy,
    cuModuleLoadData,
    cuModuleUnload,
    cuModuleGetFunction,
    cuFuncGetAttribute,
    cuFuncSetAttribute,
    cuOccupancyMaxActiveBlocksPerMultiprocessor,
    cuLaunchKernel,
    cuLaunchKernelEx,
    cuFuncLoad,
};

}  // namespace collops_sim

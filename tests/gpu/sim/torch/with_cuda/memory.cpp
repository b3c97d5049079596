// Memory and copies of the runtime.

#include <cstring>

#include "torch/with_cuda/runtime.h"

using namespace cudart_on_sim;
using collops::cuda::DevicePointer;
using collops::cuda::IpcMemoryHandle;
using collops::cuda::Result;
using collops_sim::kSimulated;
using collops_sim::MemoryType;
using collops_sim::PointerAttribute;

namespace {

DevicePointer Address(const void* pointer) {
  return reinterpret_cast<DevicePointer>(pointer);
}

Result Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return Result::kSuccess;
  return kSimulated.memcpy_async(Address(to), Address(from), bytes, stream);
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return InContext([=] {
    DevicePointer made = 0;
    const Result result = kSimulated.mem_alloc(&made, bytes);
    *pointer = reinterpret_cast<void*>(made);
    return result;
  });
}
cudaError_t cudaFree(void* pointer) {
  return InContext([=] { return kSimulated.mem_free(Address(pointer)); });
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int flags) {
  return InContext([=] { return kSimulated.mem_host_alloc(pointer, bytes, flags); });
}
cudaError_t cudaFreeHost(void* pointer) {
  return InContext([=] { return cuMemFreeHost(pointer); });
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return InContext([=] { return cuMemGetInfo_v2(free_bytes, total_bytes); });
}

// Memory that CUDA does not know is no error.
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
  std::memset(found, 0, sizeof(*found));
  found->type = cudaMemoryTypeUnregistered;
  found->device = cudaInvalidDeviceId;
  found->hostPointer = const_cast<void*>(pointer);
  return InContext([=] {
    MemoryType type{};
    const DevicePointer address = Address(pointer);
    const Result result = cuPointerGetAttribute(&type, PointerAttribute::kMemoryType, address);
    if (result != Result::kSuccess) return Result::kSuccess;
    found->type = cudaMemoryType(type);
    found->devicePointer = const_cast<void*>(pointer);
    if (type == MemoryType::kDevice) found->hostPointer = nullptr;
    return cuPointerGetAttribute(&found->device, PointerAttribute::kDeviceOrdinal, address);
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  return InContext([=] { return Copy(to, from, bytes, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return InContext([=] {
    const Result result = Copy(to, from, bytes, nullptr);
    return result == Result::kSuccess ? kSimulated.stream_synchronize(nullptr) : result;
  });
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes,
                                cudaStream_t stream) {
  return InContext([=] { return Copy(to, from, bytes, stream); });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return InContext([=] {
    return kSimulated.memset_d8_async(Address(to), static_cast<unsigned char>(value), bytes,
                                      stream);
  });
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  return InContext([=] {
    return kSimulated.ipc_get_mem_handle(reinterpret_cast<IpcMemoryHandle*>(handle),
                                         Address(pointer));
  });
}
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int flags) {
  return InContext([=] {
    DevicePointer made = 0;
    IpcMemoryHandle given{};
    std::memcpy(&given, &handle, sizeof(given));
    const Result result = kSimulated.ipc_open_mem_handle(&made, given, flags);
    *pointer = reinterpret_cast<void*>(made);
    return result;
  });
}
cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  return InContext([=] { return cuIpcCloseMemHandle(Address(pointer)); });
}

}  // extern "C"

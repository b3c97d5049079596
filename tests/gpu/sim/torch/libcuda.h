#pragma once

#include <cstddef>
#include <cstdint>

// The calls of libcuda that torch_on_sim makes, by their published signatures, and two of the
// simulation's own.
extern "C" {
int cuInit(unsigned int flags);
int cuDeviceGetCount(int* count);
int cuDevicePrimaryCtxRetain(void** context, int device);
int cuCtxSetCurrent(void* context);
int cuCtxSynchronize();
int cuThreadExchangeStreamCaptureMode(int* mode);
int cuMemAlloc_v2(uint64_t* address, size_t bytes);
int cuStreamCreate(void** stream, unsigned int flags);
int cuStreamSynchronize(void* stream);
int cuStreamQuery(void* stream);
int cuStreamIsCapturing(void* stream, int* status);
int cuStreamWaitEvent(void* stream, void* event, unsigned int flags);
int cuLaunchHostFunc(void* stream, void (*function)(void*), void* user_data);
int cuEventCreate(void** event, unsigned int flags);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int cuEventDestroy_v2(void* event);
const char* SimLastText();
}

namespace torch_on_sim {
constexpr unsigned int kNonBlocking = 1;
constexpr unsigned int kNoTiming = 2;
constexpr int kRelaxed = 2;
constexpr int kNotReady = 600;
}  // namespace torch_on_sim

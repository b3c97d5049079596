#pragma once

#include <cstddef>

// Which addresses are a simulated NPU's memory. It is host memory, so only this list tells the two
// kinds apart, and a host pointer where a device pointer is due is found.
namespace collops_sim {

constexpr int kNumDevices = 4;
constexpr int kHost = -1;
constexpr int kUnknown = -2;

// Poisoned, so that what nobody wrote does not look like zeros.
void* Allocate(size_t bytes, int device);
bool Free(void* address);

// The device whose allocation holds all the bytes; kHost for host memory that was asked for as
// such, kUnknown for any other.
int DeviceOf(const void* address, size_t bytes);

}  // namespace collops_sim

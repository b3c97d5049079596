#pragma once

#include <cstddef>
#include <memory>
#include <vector>

// Which addresses are a simulated NPU's memory. It is host memory, so only this list tells the two
// kinds apart, and a host pointer where a device pointer is due is found.
namespace collops_sim {

constexpr int kNumDevices = 8;
constexpr int kHost = -1;
constexpr int kUnknown = -2;

// Poisoned, so that what nobody wrote does not look like zeros.
void* Allocate(size_t bytes, int device);
// False for an address that was not allocated, and for memory that is pinned.
bool Free(void* address);

// Keeps the allocations that hold these addresses from being freed while the result lives, so that
// memory which is freed before a stream has used it is found. Other addresses are passed over.
std::vector<std::shared_ptr<void>> Pin(const std::vector<const void*>& addresses);

// The device whose allocation holds all the bytes; kHost for host memory that was asked for as
// such, kUnknown for any other.
int DeviceOf(const void* address, size_t bytes);

}  // namespace collops_sim

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "driver/report.h"
#include "sim/memory.h"

// The memory of the simulated GPUs. Device addresses are a range of the process that nobody can
// access; kernels and copies reach the bytes at the address plus one constant, which is
// `host_shift` of the kernels' wrappers. Each address is used once, so that what was freed is
// found.
namespace collops_sim {

void ReserveAddresses();
bool IsDeviceAddress(uintptr_t address);
bool IsHostView(uintptr_t address);
std::ptrdiff_t HostShift();

// Where the bytes at an address are: shifted in the GPUs' range, else the address itself.
void* HostView(uint64_t address);

// 0 bytes are always there. Else a text that says what is wrong with them for `device`.
std::string CheckOnDevice(const void* address, size_t bytes, int device);

// Why kernels of `device` may not use an allocation, or nothing; `peers` are the devices for which
// cuCtxEnablePeerAccess was called.
std::string CheckReach(const Allocation& allocation, int device, const std::set<int>& peers);

// Addresses of `bytes` bytes and a page behind them that nobody has.
uintptr_t TakeAddresses(size_t bytes, size_t alignment);
// A new allocation on a device, poisoned, or kOutOfMemory (COLLOPS_SIM_MEMORY bytes per device).
Result Allocate(size_t bytes, int device, Allocation* made);
// The pages of a file at an address, for kernels, and for the host if it may.
bool MapPages(uintptr_t pages, size_t bytes, int file, size_t offset, bool for_host, bool access);
void UnmapPages(uintptr_t pages, size_t bytes);
int NewFile(size_t bytes, int device);
size_t DeviceBytes();

constexpr size_t kPage = 4096;
inline size_t PagesOf(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace collops_sim

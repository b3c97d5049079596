#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "driver/report.h"

// The memory of the simulated GPUs. Device addresses are a range of the process that nobody can
// access; kernels and copies reach the bytes at the address plus one constant, which is
// `host_shift` of the kernels' wrappers. Each address is used once, so that what was freed is
// found.
namespace collops_sim {

constexpr int kHostDevice = -1;
constexpr int kNoDevice = -2;

// What lies at an address.
struct Allocation {
  enum Kind { kNothing, kDevice, kPinned, kOpened, kVirtual };
  Kind kind = kNothing;
  uintptr_t begin = 0;
  size_t bytes = 0;
  int device = kNoDevice;
  int file = -1;        // the memory behind it
  uintptr_t pages = 0;  // the mapping, which begins at or before `begin`
  size_t page_bytes = 0;
  int opened = 0;          // kOpened: how often
  uint64_t origin = 0;     // kOpened: which allocation of which process
  bool accessible = true;  // kVirtual: after cuMemSetAccess
  std::set<int> devices;   // kVirtual: those that cuMemSetAccess named
  std::shared_ptr<int> user = std::make_shared<int>();  // copies of it are pins
};

void ReserveAddresses();
bool IsDeviceAddress(uintptr_t address);
bool IsHostView(uintptr_t address);
std::ptrdiff_t HostShift();

// Where the bytes at an address are: shifted in the GPUs' range, else the address itself.
void* HostView(uint64_t address);

// The allocation that holds all these bytes; of kind kNothing if none does.
Allocation Find(uint64_t address, size_t bytes);
// 0 bytes are always there. Else a text that says what is wrong with them for `device`.
std::string CheckOnDevice(const void* address, size_t bytes, int device);

// Why kernels of `device` may not use an allocation, or nothing; `peers` are the devices for which
// cuCtxEnablePeerAccess was called.
std::string CheckReach(const Allocation& allocation, int device, const std::set<int>& peers);

// Addresses of `bytes` bytes and a page behind them that nobody has.
uintptr_t TakeAddresses(size_t bytes, size_t alignment);
void Insert(const Allocation& allocation);
// Removes the allocation that begins there. Refused, and a mistake, while a stream has yet to use
// it; kNothing if there is none.
Allocation Remove(uint64_t begin, bool* in_use);
// The opened allocation of that origin, if there is one; its count becomes one more.
Allocation OpenAgain(uint64_t origin);
// One less; returns the count that is left, or -1.
int CloseOnce(uint64_t begin);
void SetAccessible(uint64_t begin, int device);

// Keeps the allocations that hold these addresses from being freed while the result lives. Other
// addresses are passed over.
std::vector<std::shared_ptr<void>> Pin(const std::vector<const void*>& addresses);

// A new allocation on a device, poisoned, or kOutOfMemory (COLLOPS_SIM_MEMORY bytes per device).
Result Allocate(size_t bytes, int device, Allocation* made);
// The pages of a file at an address, for kernels, and for the host if it may.
bool MapPages(uintptr_t pages, size_t bytes, int file, size_t offset, bool for_host, bool access);
void UnmapPages(uintptr_t pages, size_t bytes);
int NewFile(size_t bytes, int device);
size_t DeviceBytes();
size_t UsedBytes(int device);

constexpr size_t kPage = 4096;
inline size_t PagesOf(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace collops_sim

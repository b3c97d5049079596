#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

// Which addresses of this process are memory of a simulated device. It is host memory, so only this
// list tells the kinds apart, and a host pointer where a device pointer is due is found.
namespace collops_sim {

constexpr int kHostDevice = -1;
constexpr int kNoDevice = -2;

// What lies at an address.
struct Allocation {
  // Of a device, of the host but known to the device, of another process, and mapped by hand.
  enum Kind { kNothing, kDevice, kPinned, kOpened, kVirtual };
  Kind kind = kNothing;
  uintptr_t begin = 0;
  size_t bytes = 0;
  int device = kNoDevice;
  int file = -1;        // the memory behind it, if processes can share it
  uintptr_t pages = 0;  // the mapping, which begins at or before `begin`
  size_t page_bytes = 0;
  int opened = 0;          // kOpened: how often
  uint64_t origin = 0;     // kOpened: which allocation of which process
  bool accessible = true;  // kVirtual: after it was made so
  std::set<int> devices;   // kVirtual: those for which it was
  std::shared_ptr<int> user = std::make_shared<int>();  // copies of it are pins
};

// The allocation that holds all these bytes; of kind kNothing if none does.
Allocation Find(uint64_t address, size_t bytes);
void Insert(const Allocation& allocation);
// Removes the allocation that begins there. Refused, and a mistake, while a stream has yet to use
// it; kNothing if there is none.
Allocation Remove(uint64_t begin, bool* in_use);
// The opened allocation of that origin, if there is one; its count becomes one more.
Allocation OpenAgain(uint64_t origin);
// One less; returns the count that is left, or -1.
int CloseOnce(uint64_t begin);
void SetAccessible(uint64_t begin, int device);
size_t UsedBytes(int device);

// Keeps the allocations that hold these addresses from being freed while the result lives, so that
// memory which is freed before a stream has used it is found. Other addresses are passed over.
std::vector<std::shared_ptr<void>> Pin(const std::vector<const void*>& addresses);

}  // namespace collops_sim

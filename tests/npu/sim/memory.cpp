#include "memory.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace collops_sim {
namespace {

constexpr size_t kAlignment = 512;
constexpr int kPoison = 0xA5;

struct Allocation {
  size_t bytes;
  int device;
  std::shared_ptr<int> user;  // copies of it are pins
};

// Never destroyed: streams may still work when the process ends.
struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;

  // The allocation with all these bytes, or null.
  const Allocation* Holding(const void* address, size_t bytes) const {
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const auto next = allocations.upper_bound(begin);
    if (next == allocations.begin()) return nullptr;
    const auto& [start, allocation] = *std::prev(next);
    const size_t offset = begin - start;
    const bool holds = offset <= allocation.bytes && bytes <= allocation.bytes - offset;
    return holds ? &allocation : nullptr;
  }
};

Table& GetTable() {
  static Table* const table = new Table;
  return *table;
}

}  // namespace

void* Allocate(size_t bytes, int device) {
  void* address = nullptr;
  if (posix_memalign(&address, kAlignment, bytes + 1) != 0) return nullptr;
  std::memset(address, kPoison, bytes);
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.allocations[reinterpret_cast<uintptr_t>(address)] = {bytes, device,
                                                             std::make_shared<int>()};
  return address;
}

bool Free(void* address) {
  Table& table = GetTable();
  {
    const std::lock_guard<std::mutex> lock(table.mutex);
    const auto found = table.allocations.find(reinterpret_cast<uintptr_t>(address));
    if (found == table.allocations.end()) return false;
    if (found->second.user.use_count() > 1) {
      std::fprintf(stderr, "simulated CANN: memory is freed that a stream has yet to use\n");
      return false;
    }
    table.allocations.erase(found);
  }
  std::free(address);
  return true;
}

std::vector<std::shared_ptr<void>> Pin(const std::vector<const void*>& addresses) {
  std::vector<std::shared_ptr<void>> pins;
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (const void* address : addresses) {
    const Allocation* allocation = table.Holding(address, 0);
    if (allocation != nullptr) pins.push_back(allocation->user);
  }
  return pins;
}

int DeviceOf(const void* address, size_t bytes) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const Allocation* allocation = table.Holding(address, bytes);
  return allocation == nullptr ? kUnknown : allocation->device;
}

}  // namespace collops_sim

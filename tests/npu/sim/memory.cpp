#include "memory.h"

#include <cstdint>
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
};

// Never destroyed: streams may still work when the process ends.
struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
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
  table.allocations[reinterpret_cast<uintptr_t>(address)] = {bytes, device};
  return address;
}

bool Free(void* address) {
  Table& table = GetTable();
  {
    const std::lock_guard<std::mutex> lock(table.mutex);
    if (table.allocations.erase(reinterpret_cast<uintptr_t>(address)) == 0) return false;
  }
  std::free(address);
  return true;
}

int DeviceOf(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  auto next = table.allocations.upper_bound(begin);
  if (next == table.allocations.begin()) return kUnknown;
  const auto& [start, allocation] = *std::prev(next);
  const size_t offset = begin - start;
  if (offset > allocation.bytes || bytes > allocation.bytes - offset) return kUnknown;
  return allocation.device;
}

}  // namespace collops_sim

#include "sim/memory.h"

#include <map>
#include <mutex>

namespace collops_sim {
namespace {

// Never destroyed: streams may still work when the process ends.
struct Table {
  std::mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
  std::map<int, size_t> used;  // by device

  Allocation* Holding(uint64_t address, size_t bytes) {
    const auto next_one = allocations.upper_bound(address);
    if (next_one == allocations.begin()) return nullptr;
    Allocation& found = std::prev(next_one)->second;
    const size_t offset = address - found.begin;
    const bool holds = offset < found.bytes && bytes <= found.bytes - offset;
    return holds ? &found : nullptr;
  }
};

Table& GetTable() {
  static Table* const table = new Table;
  return *table;
}

}  // namespace

Allocation Find(uint64_t address, size_t bytes) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const Allocation* found = table.Holding(address, bytes);
  if (found == nullptr) return {};
  Allocation copy = *found;
  copy.user = nullptr;  // a copy is no pin
  return copy;
}

void Insert(const Allocation& allocation) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.allocations[allocation.begin] = allocation;
  if (allocation.kind == Allocation::kDevice) table.used[allocation.device] += allocation.bytes;
}

Allocation Remove(uint64_t begin, bool* in_use) {
  *in_use = false;
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.allocations.find(begin);
  if (found == table.allocations.end()) return {};
  *in_use = found->second.user.use_count() > 1;
  if (*in_use) return {};
  const Allocation removed = found->second;
  table.allocations.erase(found);
  if (removed.kind == Allocation::kDevice) table.used[removed.device] -= removed.bytes;
  return removed;
}

Allocation OpenAgain(uint64_t origin) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (auto& [begin, allocation] : table.allocations) {
    if (allocation.kind != Allocation::kOpened || allocation.origin != origin) continue;
    ++allocation.opened;
    Allocation copy = allocation;
    copy.user = nullptr;
    return copy;
  }
  return {};
}

int CloseOnce(uint64_t begin) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.allocations.find(begin);
  if (found == table.allocations.end()) return -1;
  if (found->second.kind != Allocation::kOpened) return -1;
  return --found->second.opened;
}

void SetAccessible(uint64_t begin, int device) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto found = table.allocations.find(begin);
  if (found == table.allocations.end()) return;
  found->second.accessible = true;
  found->second.devices.insert(device);
}

std::vector<std::shared_ptr<void>> Pin(const std::vector<const void*>& addresses) {
  std::vector<std::shared_ptr<void>> pins;
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  for (const void* address : addresses) {
    const Allocation* found = table.Holding(reinterpret_cast<uint64_t>(address), 0);
    if (found != nullptr) pins.push_back(found->user);
  }
  return pins;
}

size_t UsedBytes(int device) {
  Table& table = GetTable();
  const std::lock_guard<std::mutex> lock(table.mutex);
  return table.used[device];
}

}  // namespace collops_sim

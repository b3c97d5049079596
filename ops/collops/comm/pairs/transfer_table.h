#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collops/comm/pairs/transfer.h"
#include "collops/core/status.h"

namespace collops {

// Names a posted transfer until its outcome has been collected.
struct TransferHandle {
  uint32_t index = UINT32_MAX;
  uint32_t generation = 0;
};

// A transfer that a lane knows: under way, or done and not yet collected. A refusal has no handle;
// it is removed once it has been matched.
struct OpenTransfer {
  Transfer transfer;
  Status refusal;
  Status outcome;
  uint64_t number = 0;  // of the message, once it has one
  int64_t moved = 0;    // bytes
  int source = -1;      // of a receive, once it is matched
  bool used = false;
  bool done = false;
  uint32_t generation = 0;

  bool under_way() const { return used && !done; }
  bool refuses() const { return !refusal.ok(); }
};

// The transfers of one lane; entries are reused. Not thread-safe; waits for no one.
class TransferTable {
 public:
  int Add(const Transfer& transfer);
  int AddRefusal(const Transfer& transfer, const Status& why);
  void Finish(int index);
  void Finish(int index, Status outcome);
  void Free(int index);

  OpenTransfer& operator[](int index) { return *entries_[static_cast<size_t>(index)]; }
  const OpenTransfer& operator[](int index) const { return *entries_[static_cast<size_t>(index)]; }
  int size() const { return static_cast<int>(entries_.size()); }
  // Transfers that are not done, including refusals.
  int under_way() const { return under_way_; }

  TransferHandle HandleOf(int index) const;
  // The index of a handle's transfer, -1 if it was collected before.
  int Find(TransferHandle handle) const;

 private:
  std::vector<std::unique_ptr<OpenTransfer>> entries_;
  std::vector<int> free_;
  int under_way_ = 0;
};

}  // namespace collops

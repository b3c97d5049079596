#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/core/status.h"

namespace collops::hccl {

// HCCL takes no name and no number of a part twice, also after the first part was destroyed, but a
// domain may be closed and made again: names by how often a rank has split off the same before.
// Ranks that are threads may share one. Thread-safe.
class PartNames {
 public:
  std::string Fresh(uint32_t rank, const std::string& name);

 private:
  std::mutex mutex_;
  std::map<std::pair<uint32_t, std::string>, int> counts_;
};

// An HcclComm. One that was created here is destroyed on its NPU with its last user; those that
// were split off it are users, too. The caller's is never destroyed.
class CommHandle {
 public:
  // Connects this rank by a root info, together with all ranks of the group.
  static Status FromRootInfo(const Api& api, int device, int rank, int rank_size,
                             const RootInfo& root_info, std::shared_ptr<CommHandle>* handle);
  // Connects this rank by a rank table, together with all ranks of the table.
  static Status FromRankTable(const Api& api, int device, int rank, int rank_size,
                              const std::string& path, std::shared_ptr<CommHandle>* handle);
  static std::shared_ptr<CommHandle> OfCaller(const Api& api, int rank_size, Comm comm);

  // The HcclComm of some ranks of this one, in the order of `members`; waits for no one. `name` is
  // equal on these ranks, and each of them has passed it as often before. HCCL splits only whole
  // groups, so a part is split off the group that this one was split off.
  static Status Split(const std::shared_ptr<CommHandle>& from, const std::vector<int>& members,
                      int index, const std::string& name, std::shared_ptr<CommHandle>* part);

  ~CommHandle();
  CommHandle(const CommHandle&) = delete;
  CommHandle& operator=(const CommHandle&) = delete;

  Comm comm() const { return comm_; }
  // Whether other ways to connect the same ranks are refused by HCCL.
  bool is_from_table() const { return whole_ == nullptr ? from_table_ : whole_->from_table_; }
  // Whether it was created here.
  bool owned() const { return owned_; }
  // Never destroyed from now on: its calls may still run. Nor is what it was split off.
  void Keep() {
    owned_ = false;
    if (whole_ != nullptr) whole_->Keep();
  }

 private:
  CommHandle(const Api& api, int device, Comm comm, bool owned)
      : api_(api), device_(device), comm_(comm), owned_(owned) {}

  const Api& api_;
  const int device_;
  const Comm comm_;
  bool owned_;
  bool from_table_ = false;
  bool is_callers_ = false;
  PartNames names_;                    // of what is split off this one
  std::shared_ptr<CommHandle> whole_;  // what it was split off
  std::vector<int> ranks_;             // of this group, by their numbers in the whole one
};

// 0, 1, ... rank_size - 1.
std::vector<int> AllRanks(int rank_size);

// What a Split leaves in the subgroup's spec, which outlives the subgroup's Close: the handle goes
// to the subgroup's engine in first contact, or ends at Close.
using PartInSpec = std::shared_ptr<CommHandle>;

}  // namespace collops::hccl

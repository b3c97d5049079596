#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/backends/hccl/npu.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/streams/stream_communicator.h"
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

// NPUs connected by HCCL, on one host or many; the rest is StreamCommunicator's. With an HcclComm
// of the caller's there is a board only with COLLOPS_CHECK=1.
class HcclCommunicator final : public StreamCommunicator {
 public:
  // `caller_comm`: the caller's HcclComm; null: connected in first contact.
  HcclCommunicator(std::shared_ptr<control::Control> control, const Api& api, Comm caller_comm,
                   bool compares);
  ~HcclCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;

  // What the calls use.
  const Api& api() const { return api_; }
  Comm hccl() const { return handle_->comm(); }
  const Abilities& abilities() const { return abilities_; }
  void* stand_in() const { return stand_in_; }  // AllocateStandIn()'s

 protected:
  // HcclAllGather for equal packed blocks, else HcclAllGatherV; without that a broadcast per rank.
  // Then zeros for the gaps.
  Status DoAllGatherV(const AllGatherVCall& call) override;
  // HcclReduceScatter for equal packed slices, HcclReduce if one rank alone receives, else
  // HcclReduceScatterV; without that a HcclReduce per rank. Then zeros for the rest of the output.
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  // HcclAlltoAllV, and then zeros for the gaps.
  Status DoExchangeV(const ExchangeVCall& call) override;
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBroadcast(const BroadcastCall& call) override;
  // HcclBatchSendRecv, or HcclSend or HcclRecv for the one message of a call of these names: the
  // two ways do not match each other. Both ranks skip a message without elements.
  Status DoMessages(const CallName& name, Transfer* list, int count, void* stream) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;
  Status DoSplit(const std::vector<int>& members, int index, const std::string& name,
                 std::shared_ptr<void>* part) override;

  bool connected() const override { return handle_ != nullptr; }
  Status FindDevice(int* device) const override;
  Status OnDevice(int device, const std::function<void()>& step) const override;
  Status Meet() override;
  Status AsyncError() override;
  double Patience() const override;
  // An HcclComm is never destroyed unless all calls here are known to have ended.
  void LetGo(bool past) override;

 private:
  Status Connect(std::shared_ptr<CommHandle> handle, Abilities abilities);

  const Api& api_;
  AclRuntime runtime_;
  std::shared_ptr<CommHandle> caller_comm_;
  std::shared_ptr<CommHandle> handle_;
  Abilities abilities_;
  void* stand_in_ = nullptr;
};

}  // namespace collops::hccl

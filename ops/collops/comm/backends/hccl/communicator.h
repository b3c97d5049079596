#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/backends/hccl/library.h"
#include "collops/comm/call.h"
#include "collops/comm/pairs/transfer.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/core/status.h"
#include "collops/kernels/device_runtime.h"
#include "collops/kernels/stream_compute.h"

namespace collops::hccl {

// Makes an NPU the thread's current device while it lives: HCCL and the runtime use the current
// device, which the caller may have changed. A thread that had none keeps this one, because the
// runtime cannot unset it.
class DeviceScope {
 public:
  DeviceScope(const Api& api, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  // Ok, or why the NPU could not be set.
  const Status& status() const { return status_; }

 private:
  const Api& api_;
  int32_t before_ = -1;  // the device to restore; -1: none
  Status status_;
};

// The address of an element of device memory.
void* ElementAt(void* data, int64_t element, DType dtype);

// A little device memory that no call reads or writes, where CANN takes no null.
constexpr size_t kStandInBytes = 512;
Status AllocateStandIn(const Api& api, void** stand_in);

// Sets the elements [range.begin, range.end) of device memory to zero, on the stream.
Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream);

// Copies device memory on the stream; nothing if it is the same memory or there are no bytes.
Status Copy(const Api& api, void* to, const void* from, int64_t bytes, Stream stream);

// An event that may be recorded again where the library has such.
Status CreateEvent(const Api& api, Event* event);

// Events and captured graphs of the ACL runtime. With a library that has no graphs, no stream is
// ever captured. Owned by a communicator; threads as in DeviceRuntime, but any thread may destroy a
// graph.
class AclRuntime : public kernels::DeviceRuntime {
 public:
  explicit AclRuntime(const Api& api) : api_(api) {}

  Status CreateEvent(Event* event) override;
  Status RecordEvent(Event event, Stream stream) override;
  Progress QueryEvent(Event event) override;
  void DestroyEvent(Event event) override;
  Status FindGraph(Stream stream, Graph* graph) override;
  void KeepWithGraph(Graph graph, std::shared_ptr<const void> kept) override;

 private:
  const Api& api_;
};

// CANN's operators, declared here from aclnn's documents. Each is called in two phases: the first
// returns an executor, which is used once, and the bytes of workspace of the second.

using AclTensor = void*;
using AclScalar = void*;
using AclExecutor = void*;
using AclnnStatus = int32_t;                   // 0 is success
constexpr AclnnStatus kAclnnInvalid = 161002;  // the shapes or types are not supported

// aclDataType has collops' numbers (core/dtype.h). aclFormat:
constexpr int32_t kFormatNd = 2;
// cubeMathType: float32 is multiplied as float32.
constexpr int8_t kKeepType = 0;

struct Aclnn {
  AclTensor (*create_tensor)(const int64_t* dims, uint64_t num_dims, int32_t type,
                             const int64_t* strides, int64_t offset, int32_t format,
                             const int64_t* storage_dims, uint64_t num_storage_dims, void* data);
  AclnnStatus (*destroy_tensor)(AclTensor tensor);
  AclScalar (*create_scalar)(void* value, int32_t type);
  AclnnStatus (*destroy_scalar)(AclScalar scalar);

  AclnnStatus (*matmul_size)(AclTensor self, AclTensor mat2, AclTensor out, int8_t cube_math_type,
                             uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*matmul)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*mm_size)(AclTensor self, AclTensor mat2, AclTensor out, int8_t cube_math_type,
                         uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*mm)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*cast_size)(AclTensor self, int32_t type, AclTensor out, uint64_t* bytes,
                           AclExecutor* executor);
  AclnnStatus (*cast)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*add_size)(AclTensor self, AclTensor other, AclScalar alpha, AclTensor out,
                          uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*add)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  AclnnStatus (*mul_size)(AclTensor self, AclTensor other, AclTensor out, uint64_t* bytes,
                          AclExecutor* executor);
  AclnnStatus (*mul)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
  // Null if the library is too old. Of int8 into int32 no scale counts, but x2_scale must be there.
  AclnnStatus (*quant_matmul_size)(AclTensor x1, AclTensor x2, AclTensor x1_scale,
                                   AclTensor x2_scale, AclTensor y_scale, AclTensor x1_offset,
                                   AclTensor x2_offset, AclTensor y_offset, AclTensor bias,
                                   bool transpose_x1, bool transpose_x2, int64_t group_size,
                                   AclTensor out, uint64_t* bytes, AclExecutor* executor);
  AclnnStatus (*quant_matmul)(void* workspace, uint64_t bytes, AclExecutor executor, Stream stream);
};

// Opens libnnopbase.so and libopapi.so once per process, or the libraries into which newer versions
// of CANN cut the second, and leaves them open. ERROR_UNSUPPORTED with the loader's messages if a
// function is in none of them.
Status LoadAclnn(const Aclnn** aclnn);

struct Operator;

// Products and sums of an NPU, by aclnn. Owned by the communicator of that NPU, which every call
// makes the thread's current device.
class AclCompute : public kernels::StreamCompute {
 public:
  // `device` changes once, from -1 to the NPU's number.
  AclCompute(const Api& api, const std::atomic<int>& device) : api_(api), device_(device) {}
  AclCompute(const AclCompute&) = delete;
  AclCompute& operator=(const AclCompute&) = delete;

  Status Available() override;
  Status OnDevice(const std::function<Status()>& work) override;
  bool has_int8() const override;
  const char* leaves_missing() const override {
    return "aclnn's products do not add in ascending k, and HCCL adds in an order of its own";
  }
  int64_t alignment() const override { return kAlignment; }
  Status ScratchBytes(const kernels::StreamStep& step, int64_t* bytes) override;
  Status Run(const kernels::StreamStep& step, void* scratch, int64_t bytes, void* stream) override;
  Status SetZero(void* data, int64_t bytes, void* stream) override;
  Status Copy(void* to, const void* from, int64_t bytes, void* stream) override;
  Status SideStream(void** stream) override;
  std::shared_ptr<kernels::StreamMarks> NewMarks() override;

  // Destroys the side stream and gives memory back. The calls are past.
  void Release() override;

 private:
  // What aclnn's workspaces and its operators' tensors are aligned to.
  static constexpr int64_t kAlignment = 512;

  // Whether aclnn adds up products of a type of two bytes in float32, and rounds no more: Ok, or
  // ERROR_UNSUPPORTED. Asks the library once per process, by a small product that it waits for.
  Status FindFloatSums(DType dtype) const;
  // Whether one operator does; ERROR_UNSUPPORTED if it refuses the types.
  Status TryFloatSum(const Operator& product, bool* is_right) const;

  class Prepared;
  // The operators of aclnn that make a step, one after the other. They keep what is between them at
  // the beginning of `scratch`, in `bytes`; `stand_in`: the address of every matrix, or null.
  struct Operators;
  Operators OperatorsOf(const kernels::StreamStep& step, void* scratch) const;

  const Api& api_;
  const std::atomic<int>& device_;
  const Aclnn* aclnn_ = nullptr;
  void* stand_in_ = nullptr;  // whose address is passed for any matrix where sizes are asked for
  Stream side_ = nullptr;     // never destroyed if its work may not be past
};

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
  // Connects this rank by a rank table, together with all ranks of the table. Null where this NPU
  // has a group of a rank table already: HCCL takes one at a time, whatever is in it.
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
  // Whether it was created here.
  bool owned() const { return owned_; }
  // Never destroyed from now on: its calls may still run. Nor is what it was split off.
  void Keep() {
    owned_ = false;
    if (whole_ != nullptr) whole_->Keep();
  }

 private:
  // `buffer_mb`: of one of its two buffers, of an HcclComm that was created here.
  CommHandle(const Api& api, int device, Comm comm, uint32_t buffer_mb);

  const Api& api_;
  const int device_;
  const Comm comm_;
  const uint32_t buffer_mb_;
  bool owned_;
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
  int64_t ScratchBytes(DType dtype, ReduceOp op, int64_t own_count, int num_ranks) const override;

  // What the calls use.
  const Api& api() const { return api_; }
  Comm hccl() const { return handle_->comm(); }
  const Abilities& abilities() const { return abilities_; }
  kernels::StreamCompute& compute() const { return *compute_; }
  // COLLOPS_HCCL_SUMS=rank_order, for a sum whose bits depend on the order.
  bool AddsInOrder(DType dtype, ReduceOp op) const;
  // HCCL connects ranks in the first call of each of its functions, and of Send and Recv for each
  // pair of ranks, and nothing but HCCL_CONNECT_TIMEOUT ends its wait for them. So these ranks meet
  // on the host before that call, unless it is captured or COLLOPS_CHECK=1 has compared it.
  Status MeetFor(const char* function, const Agreement& agreement, Stream stream);
  Status MeetFor(const char* called, const std::vector<control::Control::PairMark>& pairs,
                 Stream stream);
  // HCCL answers in the first call of a function whether the topology has it: `*there`, one of
  // abilities(), is false from then on if not. On all ranks alike: they tell each other, if they
  // can meet, as HCCL would keep a rank waiting that has it for one that does not.
  Status Settle(const char* function, const Agreement& agreement, Result answer, Stream stream,
                bool Abilities::* there);
  // Passed for a side of a call without elements, never read or written. Some versions of HCCL take
  // no null there, and none takes one address for both sides, whatever the counts are.
  void* sent_nothing() const { return stand_in_; }
  void* received_nothing() const { return static_cast<std::byte*>(stand_in_) + kStandInBytes / 2; }

 protected:
  // HcclAllGather for equal packed blocks, else HcclAllGatherV; without that a broadcast per rank.
  // Then zeros for the gaps.
  Status DoAllGatherV(const AllGatherVCall& call) override;
  // HcclReduceScatter for equal packed slices, HcclReduce if one rank alone receives, else
  // HcclReduceScatterV; without that a HcclReduce per rank. Then zeros for the rest of the output.
  // In rank order: HcclAlltoAllV, and aclnn's sums.
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
  bool IsHandedIn() const override { return caller_comm_ != nullptr; }
  double Patience() const override;
  // An HcclComm is never destroyed unless all calls here are known to have ended.
  void LetGo(bool past) override;

 private:
  Status Connect(std::shared_ptr<CommHandle> handle, Abilities abilities);
  // Whether the ranks are to meet for a call on the stream.
  Status FindWhetherToMeet(Stream stream, bool* meets) const;
  Status MeetByTable(const Agreement& agreement, std::shared_ptr<CommHandle>* handle);
  Status MeetByRootInfo(const Agreement& agreement, std::shared_ptr<CommHandle>* handle);

  const Api& api_;
  AclRuntime runtime_;
  std::shared_ptr<CommHandle> caller_comm_;
  std::shared_ptr<CommHandle> handle_;
  Abilities abilities_;
  kernels::StreamCompute* compute_ = nullptr;
  bool adds_in_order_ = false;        // COLLOPS_HCCL_SUMS=rank_order
  bool meets_ = true;                 // COLLOPS_HCCL_MEET
  std::set<std::string> met_;         // the functions for which the ranks have met
  std::map<int, uint8_t> met_pairs_;  // this rank's marks, by peer
  std::set<std::string> settled_;     // the functions that HCCL turned out to have
  void* stand_in_ = nullptr;          // AllocateStandIn()'s
};

}  // namespace collops::hccl

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collops/comm/agreement.h"
#include "collops/comm/call.h"
#include "collops/comm/streams/stream_communicator.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/step.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda_peers {

// The agreements of the last calls of every rank, in memory that the ranks of the host share.
// Kernels compare digests alone, after the call has returned; what differs is looked up here. A
// call whose terms are in the table is not written again. One thread at a time writes and reads.
class CallTable {
 public:
  static int64_t Bytes(int rank_size);

  CallTable(std::byte* memory, int rank, int rank_size)
      : memory_(memory), rank_(rank), size_(rank_size) {}

  // Before the call is put on its stream. `call`: the number of the user's call.
  void Write(const Agreement& agreement, uint64_t call);

  // What the ranks disagree in, with the terms that kernels have found; `who` names a rank.
  Status Describe(const cuda::Verdict& verdict, const std::function<std::string(int)>& who) const;

 private:
  // Calls of a rank with different terms, of which the last are kept.
  static constexpr int kCalls = 16;
  struct Written {
    Agreement agreement;  // only its terms' names are used later
    uint64_t identity;
    uint64_t call;
  };

  static int64_t SlotWords(int rank_size);
  int64_t* Slot(int rank, int index) const;
  // The encoding of a rank's call with these terms; empty if it is no longer there.
  std::vector<int64_t> Find(int rank, uint64_t digest, uint64_t balance) const;

  std::byte* const memory_;
  const int rank_;
  const int size_;
  std::vector<Written> written_;  // by slot
  int next_ = 0;
};

// A part of a slab: its address here, and where it is for other processes.
struct SlabPart {
  cuda::DevicePointer pointer = 0;
  cuda::DevicePointer slab = 0;
  int64_t bytes = 0;
  cuda::IpcMemoryHandle handle = {};  // of the slab
};

// Memory that kernels and the host share: `host` and `device` are the same bytes.
struct SharedPart {
  void* host = nullptr;
  cuda::DevicePointer device = 0;
};

// What a rank tells the others before it has a region: where it runs.
struct Place {
  cuda::Home home;
  uint64_t draw;        // a random number
  int32_t device;       // as cuDeviceGet counts in that process
  int32_t most_blocks;  // that kernels of one call may have on its GPU, together
  int32_t sharers;      // ranks that were on its GPU in an earlier group of that process
};
Status FindPlace(const cuda::DriverApi& driver, int device, int most_blocks, Place* place);
// Ranks that share the GPU of `of`: those of the group, or of a larger one of which it is a part,
// as the calls of its other parts run at the same time.
int SharersOf(const std::vector<Place>& places, const Place& of);
// Blocks of a kernel of the rank at `of`: the ranks of its GPU have equal parts of most_blocks.
int BlocksOf(const std::vector<Place>& places, const Place& of);
// Notes, for the groups that meet later, how many ranks are on the GPU of `own`.
void NoteSharers(const std::vector<Place>& places, const Place& own);

// A rank's region, the regions of its peers as its GPU addresses them, and the memory of the host
// that its kernels share with this process. The thread's current context is the device's in every
// call; Allocate() and Open() may wait for the device.
class PeerMemory {
 public:
  // Waits until the driver may be called for memory; an error keeps it from being called.
  using Before = std::function<Status()>;

  explicit PeerMemory(const cuda::DriverApi& driver) : driver_(driver) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // This rank's region, of zeros, but for the number of the last step.
  Status Allocate(int device, int64_t bytes, uint32_t last_step, const Before& before);
  // What the peers need to reach it.
  const SlabPart& own() const { return own_; }
  // The regions of all ranks; `rank` is this one.
  Status Open(int rank, const std::vector<Place>& places, const std::vector<SlabPart>& parts,
              const Before& before);

  // Addresses for kernels; null in a group that has not met.
  char* region(int rank) const { return regions_[rank]; }
  const uint32_t* device_stop() const;
  uint64_t* device_wait() const;
  cuda::Verdict* device_verdict() const;

  // Ends the waits of the kernels. From any thread.
  void Stop();
  // What a kernel that waits has written last; 0: none has waited for long. From any thread.
  uint64_t ReadWait();
  // What the kernels have found; `step` 0: nothing.
  cuda::Verdict ReadVerdict() const;

  // A later communicator gets the memory of the host if this rank's calls are `past`, and the
  // region if those of all ranks are.
  void LetGo(bool past, bool all_past);

 private:
  // The memory of the host: the word that stops kernels, and in lines of their own what kernels
  // write.
  struct HostSide {
    alignas(64) uint32_t stop;
    alignas(64) uint64_t wait;
    alignas(64) cuda::Verdict verdict;
  };

  Status Clear(uint32_t last_step);
  Status OpenPeer(const Place& own, const Place& peer, const SlabPart& part, const Before& before,
                  char** region);

  const cuda::DriverApi& driver_;
  int device_ = -1;
  SlabPart own_;
  SharedPart shared_;
  std::mutex letting_go_;  // Stop() and ReadWait() may run meanwhile
  std::atomic<HostSide*> host_{nullptr};
  char* regions_[cuda::kMostRanks] = {};
};

// GPUs of one host that address each other's memory: a call is one kernel on each, or two, which
// wait for the kernels of the peers. Ranks are threads or processes, and may share a GPU. The
// kernels compare the calls, so a disagreement is reported by the next call; the rest is
// StreamCommunicator's. A kernel has its own copy of counts and displacements, so nothing but the
// tensors is used later.
class CudaCommunicator final : public StreamCommunicator {
 public:
  CudaCommunicator(std::shared_ptr<control::Control> control, const cuda::DriverApi& driver,
                   bool compares);
  ~CudaCommunicator() override { Finish(); }

  Status Supports(Primitive primitive, DType dtype, ReduceOp op) const override;

  // A call of this group: its terms, which the ranks' kernels compare. The rest is the caller's.
  cuda::PeerCall BeginCall(const Agreement& agreement);
  // Puts the call on the stream, behind this communicator's earlier calls on other streams, which
  // a captured call comes behind in its own graph only.
  // `bytes`: how many it reads or writes here. `part`: of the work of all ranks.
  template <class Args>
  Status Launch(Args args, int64_t bytes, double part, cuda::Stream stream) {
    cuda::Describe(&args.call);
    args.call.group.num_workers = WorkersOn(stream);
    args.call.is_streamed = IsStreamed(bytes) ? 1 : 0;
    int blocks = 1;
    COLLOPS_RETURN_IF_ERROR(FindBlocks(args.call, bytes, &blocks));
    COLLOPS_RETURN_IF_ERROR(CheckStream(stream));
    const cuda::RunningCalls::Launching launching(device_index());
    COLLOPS_RETURN_IF_ERROR(OrderBehindLast(stream));
    if (IsGated(bytes)) {
      COLLOPS_RETURN_IF_ERROR(LaunchGated(cuda::Gated<Args>{args}, bytes, part, stream));
    } else {
      COLLOPS_RETURN_IF_ERROR(kernels_.LaunchBlocks(args, blocks, stream));
    }
    return MarkLast(stream);
  }

 protected:
  // Also a call without elements is a step, in which the kernels compare.
  Status DoAllGatherV(const AllGatherVCall& call) override;
  // The kernel reads each slice once and adds in rank order.
  Status DoReduceScatterV(const ReduceScatterVCall& call) override;
  Status DoExchangeV(const ExchangeVCall& call) override;
  // What fits into a cell goes to every rank, and each adds all; longer x: ReduceScatterV and
  // AllGatherV of even parts.
  Status DoAllReduce(const AllReduceCall& call) override;
  Status DoBarrier(const Agreement& agreement, void* stream) override;

  bool connected() const override { return is_connected_; }
  Status FindDevice(int* device) const override { return cuda::CurrentDevice(driver_, device); }
  void AllowCaptures() const override { cuda::AllowCaptures(driver_); }
  Status OnDevice(int device, const std::function<void()>& step) const override {
    return cuda::OnDevice(driver_, device, step);
  }
  Status Meet() override;
  Status AsyncError() override;
  Status DeviceError() override;
  std::optional<double> WaitingS() override;
  bool ComparesReplays() const override { return true; }
  bool EndsByAbort() const override { return true; }
  void AbortCalls() override { memory_.Stop(); }
  double Patience() const override;
  void LetGo(bool past) override;

 private:
  // Ok, or why kernels of this rank cannot wait for others' on that stream.
  Status CheckStream(void* stream) const;
  Status MakeRegion(const std::vector<Place>& places, const std::vector<cuda::Home>& homes);
  Status MayAllocate();
  void Arrange(const std::vector<Place>& places, const std::vector<cuda::Home>& homes);
  // Whether the call is two kernels, of which the one that moves data waits for no late rank.
  bool IsGated(int64_t bytes) const;
  bool IsStreamed(int64_t bytes) const;
  template <class Args>
  Status LaunchGated(cuda::Gated<Args> gated, int64_t bytes, double part,
                     cuda::Stream stream) const {
    // Messages of so many bytes do not need more threads.
    constexpr int kFewBytes = 256;
    cuda::PeerCall& call = gated.args.call;
    call.group.num_workers = 1;
    const bool only_waits = call.sends.longest <= kFewBytes;
    COLLOPS_RETURN_IF_ERROR(kernels_.LaunchBlocks(
        cuda::GateArgs{call}, 1, stream,
        only_waits ? cuda::Kernels::kWaitingThreads : cuda::Kernels::kThreads));
    const int blocks = DataBlocks(Args::kGatedName, bytes, part);
    call.group.num_workers = blocks;
    return kernels_.LaunchBlocks(gated, blocks, stream);
  }
  int DataBlocks(const char* name, int64_t bytes, double part) const;
  int WorkersOn(cuda::Stream stream) const;
  int WorkersBeside() const;
  Status FindBlocks(const cuda::PeerCall& call, int64_t bytes, int* blocks) const;
  Status OrderBehindLast(cuda::Stream stream);
  Status MarkLast(cuda::Stream stream);

  const cuda::DriverApi& driver_;
  cuda::Runtime runtime_;
  cuda::Kernels kernels_;
  PeerMemory memory_;
  std::optional<CallTable> table_;
  cuda::Group group_ = {};
  int most_blocks_ = 1;         // of a kernel that waits
  int sharers_ = 1;             // ranks of its GPU
  bool shares_device_ = false;  // with another rank of this process
  std::atomic<bool> is_connected_{false};
  // An event behind a call, and the number of its capture.
  struct Last {
    cuda::Event event = nullptr;
    uint64_t capture = 0;
  };
  Last last_;           // the last call that was not captured
  Last last_captured_;  // and the last one that was
  // What a kernel that waits had written when it was last looked at, and when its step was first
  // seen there.
  uint64_t wait_seen_ = 0;
  std::chrono::steady_clock::time_point wait_since_;
};

}  // namespace collops::cuda_peers

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "collops/comm/backends/cuda/disagreement.h"
#include "collops/comm/backends/cuda/peer_memory.h"
#include "collops/comm/streams/stream_engine.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/kernels.h"
#include "collops/kernels/cuda/peers/step.h"
#include "collops/kernels/cuda/runtime.h"

namespace collops::cuda_peers {

// One rank's GPU, its kernels, and the memory through which they meet those of the peers. Threads
// as in StreamEngine.
class Engine : public StreamEngine {
 public:
  Engine(const cuda::DriverApi& driver, const CommunicatorSpec& spec);

  const cuda::DriverApi& driver() const { return driver_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

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
    const cuda::RunningCalls::Launching launching(device_);
    COLLOPS_RETURN_IF_ERROR(OrderBehindLast(stream));
    if (IsGated(bytes)) {
      COLLOPS_RETURN_IF_ERROR(LaunchGated(cuda::Gated<Args>{args}, bytes, part, stream));
    } else {
      COLLOPS_RETURN_IF_ERROR(kernels_.LaunchBlocks(args, blocks, stream));
    }
    return MarkLast(stream);
  }

  bool connected() const override { return is_connected_; }
  Status FindDevice(int* device) const override;
  Status OnDevice(int device, const std::function<void()>& step) const override;
  Status Meet(control::Control* control, bool compares, int device) override;
  // Ok, or why kernels of this rank cannot wait for others' on that stream.
  Status CheckStream(void* stream) const;
  DeviceShare device_share() const override { return share_; }
  Status AsyncError() override;
  Status DeviceError() override;
  std::optional<double> WaitingS() override;
  bool ComparesReplays() const override { return true; }
  bool EndsByAbort() const override { return true; }
  void AbortCalls() override { memory_.Stop(); }
  void AllowCaptures() const override;

 protected:
  double Patience() const override;
  void LetGo(bool past) override;

 private:
  Status MakeRegion(const std::vector<Place>& places, int device);
  Status MayAllocate();
  void Arrange(const std::vector<Place>& places);
  // Whether the call is three kernels, of which the one that moves data never waits.
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
    COLLOPS_RETURN_IF_ERROR(kernels_.LaunchOne(cuda::GateArgs{call}, only_waits, stream));
    const int blocks = DataBlocks(Args::kGatedName, bytes, part);
    call.group.num_workers = blocks;
    COLLOPS_RETURN_IF_ERROR(kernels_.LaunchBlocks(gated, blocks, stream));
    return kernels_.LaunchOne(cuda::ReleaseArgs{call}, true, stream);
  }
  int DataBlocks(const char* name, int64_t bytes, double part) const;
  int WorkersOn(cuda::Stream stream) const;
  int WorkersBeside() const;
  Status FindBlocks(const cuda::PeerCall& call, int64_t bytes, int* blocks) const;
  Status OrderBehindLast(cuda::Stream stream);
  Status MarkLast(cuda::Stream stream);

  const cuda::DriverApi& driver_;
  const int rank_;
  const int size_;
  cuda::Runtime runtime_;
  cuda::Kernels kernels_;
  PeerMemory memory_;
  control::Control* control_ = nullptr;  // owned by the communicator, as this is
  std::optional<CallTable> table_;
  cuda::Group group_ = {};
  int most_blocks_ = 1;  // of a kernel that waits
  int sharers_ = 1;      // ranks of its GPU
  int device_ = -1;
  bool shares_device_ = false;  // with another rank of this process
  DeviceShare share_;
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

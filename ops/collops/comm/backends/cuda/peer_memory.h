#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "collops/comm/backends/cuda/slabs.h"
#include "collops/core/status.h"
#include "collops/kernels/cuda/devices.h"
#include "collops/kernels/cuda/driver.h"
#include "collops/kernels/cuda/peers/region.h"

namespace collops::cuda_peers {

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
  explicit PeerMemory(const cuda::DriverApi& driver) : driver_(driver) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  // This rank's region, of zeros, but for the number of the last step.
  Status Allocate(int device, int64_t bytes, uint32_t last_step, const Slabs::Before& before);
  // What the peers need to reach it.
  const SlabPart& own() const { return own_; }
  // The regions of all ranks; `rank` is this one.
  Status Open(int rank, const std::vector<Place>& places, const std::vector<SlabPart>& parts,
              const Slabs::Before& before);

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
  Status OpenPeer(const Place& own, const Place& peer, const SlabPart& part,
                  const Slabs::Before& before, char** region);

  const cuda::DriverApi& driver_;
  int device_ = -1;
  SlabPart own_;
  SharedPart shared_;
  std::mutex letting_go_;  // Stop() and ReadWait() may run meanwhile
  std::atomic<HostSide*> host_{nullptr};
  char* regions_[cuda::kMostRanks] = {};
};

}  // namespace collops::cuda_peers

// Ranks whose kernels meet through regions, on the CPU: each rank runs its kernels in a thread, one
// after another, as a stream does.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "collops/kernels/cuda/peers/move.h"
#include "collops/kernels/cuda/peers/region.h"
#include "collops/kernels/cuda/peers/step.h"
#include "kernels/cuda_grid.h"

namespace cuda_peers {

using collops::cuda::Group;
using collops::cuda::PeerCall;
using collops::cuda::RegionLayout;

// A group of `size` ranks. Their regions begin with a step of any number.
class Ranks {
 public:
  Ranks(int size, bool is_direct, int num_workers, int64_t slot_bytes, uint64_t steps_before)
      : layout_{size, num_workers, slot_bytes},
        is_direct_(is_direct || size == 1),
        waits_(size),
        verdicts_(size) {
    for (int rank = 0; rank < size; ++rank) {
      const auto bytes = static_cast<size_t>(layout_.Bytes());
      regions_.emplace_back(new Line[bytes / sizeof(Line) + 1]());
      Own(rank)->step = steps_before;
    }
  }

  Group GroupOf(int rank) {
    Group group = {};
    group.rank = rank;
    group.size = static_cast<int32_t>(layout_.size);
    group.is_direct = is_direct_ ? 1 : 0;
    group.num_workers = static_cast<int32_t>(layout_.num_workers);
    group.slot_bytes = layout_.slot_bytes;
    for (int peer = 0; peer < group.size; ++peer) {
      group.regions[peer] = reinterpret_cast<char*>(regions_[peer].get());
    }
    group.stop = &stop_;
    group.wait = &waits_[rank];
    group.verdict = &verdicts_[rank];
    return group;
  }
  collops::cuda::OwnCounts* Own(int rank) {
    return &reinterpret_cast<collops::cuda::RegionHead*>(regions_[rank].get())->own;
  }
  const collops::cuda::Verdict& VerdictOf(int rank) const { return verdicts_[rank]; }
  // What a kernel of this rank that waits has told the host.
  uint64_t WaitOf(int rank) const { return __atomic_load_n(&waits_[rank], __ATOMIC_RELAXED); }
  void Stop() { __atomic_store_n(&stop_, 1u, __ATOMIC_RELEASE); }
  int size() const { return static_cast<int>(layout_.size); }
  bool is_direct() const { return is_direct_; }
  int num_workers() const { return static_cast<int>(layout_.num_workers); }

  // work(rank) of every rank in a thread.
  template <class Work>
  void Run(const Work& work) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back([&work, rank] { work(rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  struct alignas(64) Line {
    char bytes[64];
  };
  RegionLayout layout_;
  bool is_direct_;
  std::vector<std::unique_ptr<Line[]>> regions_;
  std::vector<uint64_t> waits_;
  std::vector<collops::cuda::Verdict> verdicts_;
  uint32_t stop_ = 0;
};

// Puts a call on this rank's stream: one kernel, whole(args, block), in every worker; or, where
// data is read in place, perhaps a gate, and behind(args, block) in any grid.
template <class Args, class Whole, class Behind>
void Launch(const Ranks& ranks, Args args, std::mt19937_64& random, const Whole& whole,
            const Behind& behind) {
  using collops::cuda::HostBlock;
  cuda_grid::Grid grid = cuda_grid::DrawGrid(random);
  const bool is_gated = ranks.is_direct() && random() % 2 == 0;
  if (!is_gated) grid.blocks = static_cast<uint32_t>(ranks.num_workers());
  grid.at_once = 1 + static_cast<uint32_t>(random() % grid.blocks);
  args.call.is_streamed = static_cast<int32_t>(random() % 2);
  collops::cuda::Describe(&args.call);
  if (!is_gated) return cuda_grid::Run(grid, [&](HostBlock& block) { whole(args, block); });
  const cuda_grid::Grid one = {1, collops::cuda::kMostRanks, 1};
  args.call.group.num_workers = 1;
  cuda_grid::Run(one, [&](HostBlock& block) {
    collops::cuda::Gate(collops::cuda::GateArgs{args.call}, block);
  });
  args.call.group.num_workers = static_cast<int32_t>(grid.blocks);
  cuda_grid::Run(grid, [&](HostBlock& block) { behind(collops::cuda::Gated<Args>{args}, block); });
}

// Memory of one rank, with poison all around; its first byte lies `shift` bytes behind a multiple
// of 16.
class Buffer {
 public:
  Buffer(int64_t bytes, size_t shift)
      : bytes_(static_cast<size_t>(bytes)), begin_(kMargin + shift), all_(bytes_ / 16 + 6) {
    std::memset(all_.data(), kPoison, all_.size() * 16);
  }
  char* data() { return reinterpret_cast<char*>(all_.data()) + begin_; }
  int64_t bytes() const { return static_cast<int64_t>(bytes_); }
  bool HasPoisonAround() const {
    const auto* const all = reinterpret_cast<const char*>(all_.data());
    for (size_t i = 0; i < all_.size() * 16; ++i) {
      const bool inside = i >= begin_ && i - begin_ < bytes_;
      if (!inside && all[i] != kPoison) return false;
    }
    return true;
  }
  bool Equals(const Buffer& other) const {
    return std::memcmp(all_.data(), other.all_.data(), all_.size() * 16) == 0;
  }
  static constexpr char kPoison = 0x5b;

 private:
  struct alignas(16) Unit {
    char bytes[16];
  };
  static constexpr size_t kMargin = 32;
  size_t bytes_;
  size_t begin_;
  std::vector<Unit> all_;
};

}  // namespace cuda_peers

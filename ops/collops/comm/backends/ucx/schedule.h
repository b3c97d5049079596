#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "collops/comm/control/group.h"
#include "collops/core/dtype.h"

namespace collops::ucx {

// Which ranks run on which host, as this rank sees it. Ranks of a host are counted in their order:
// local index 0 is the first.
class HostMap {
 public:
  HostMap(const control::Group& group, int rank);
  // `host_of`: by rank.
  HostMap(const std::vector<int>& host_of, int rank);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  int own_host() const { return own_; }
  int HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  bool IsLocal(int rank) const { return HostOf(rank) == own_; }
  const std::vector<int>& RanksOf(int host) const { return ranks_[static_cast<size_t>(host)]; }
  const std::vector<int>& own_ranks() const { return RanksOf(own_); }
  int LocalIndex(int rank) const { return index_[static_cast<size_t>(rank)]; }
  int own_index() const { return own_index_; }
  // The other hosts, beginning after this one, so that not all send to the same host first;
  // `index`: from 0.
  int OtherHost(int host, int index) const { return (host + 1 + index) % hosts(); }
  std::vector<int> OtherHosts() const;
  // The rank of another host that speaks for it to a rank: the one with the rank's local index,
  // modulo the number of ranks there.
  int SpeakerOf(int host, int rank) const {
    const std::vector<int>& there = RanksOf(host);
    return there[static_cast<size_t>(LocalIndex(rank)) % there.size()];
  }
  bool Speaks(int from, int to) const {
    return HostOf(from) != HostOf(to) && SpeakerOf(HostOf(from), to) == from;
  }
  // Of every other host, the rank that speaks for it to this one. Targets(): the ranks that this
  // one speaks to.
  std::vector<int> Sources() const;
  std::vector<int> Targets() const;

 private:
  void Add(int host);

  std::vector<int> host_of_;
  std::vector<int> index_;
  std::vector<std::vector<int>> ranks_;
  int own_ = 0;
  int own_index_ = 0;
};

// The most chunks of one stream that are under way at once, and the slots of a ring of chunks.
constexpr int64_t kStreamSlots = 4;
constexpr int64_t kStreamChunkBytes = 256 << 10;

// UCX cuts a longer message into fragments. One has 8 KiB over TCP, and is never shorter than this.
constexpr int64_t kFragmentBytes = 6 << 10;

// How a stream of `bytes` is cut; the same on both sides.
struct Chunking {
  int64_t bytes = 0;
  int64_t chunk_bytes = kStreamChunkBytes;
  // Chunks that the sender may send before it has heard from the receiver.
  int64_t free_chunks = 0;

  int64_t count() const { return (bytes + chunk_bytes - 1) / chunk_bytes; }
  int64_t BytesOf(int64_t chunk) const {
    return std::min(chunk_bytes, bytes - chunk * chunk_bytes);
  }
  // From the sender: chunks, and an empty message by which a last one of several fragments is
  // handed over (SendDone); over a connection that is full, also a shorter one.
  int64_t messages() const {
    return count() + (bytes > 0 && BytesOf(count() - 1) > kFragmentBytes ? 1 : 0);
  }
};

// So many bytes travel with the head of a step, in one message with it.
constexpr int64_t kMostHeadBytes = 4096;

// Bytes of one call that cross from a rank to a rank of another host: one stream, or a part of the
// message with the head.
struct Piece {
  int from = 0;
  int to = 0;
  int number = 0;     // tells apart the streams from one rank to another
  int owner = 0;      // the rank whose block it is of, or for whom a slice is
  int64_t begin = 0;  // elements [begin, begin + count) of the block or slice
  int64_t count = 0;
  bool with_head = false;
};

// Whether so many bytes travel with the head that `from` sends to `to`, if it sends one.
inline bool TravelWithHead(const HostMap& hosts, int from, int to, int64_t bytes) {
  return bytes > 0 && bytes <= kMostHeadBytes && hosts.Speaks(from, to);
}

// What crosses between hosts in a call that reduces nothing on the way. Depends on sizes and hosts
// alone: the backend and its predictions use it. A value; waits for no one.
class Schedule {
 public:
  // `counts`: elements by rank. Both must outlive it.
  Schedule(const HostMap& hosts, const int64_t* counts, int64_t item_bytes)
      : hosts_(hosts), counts_(counts), item_(item_bytes) {}
  virtual ~Schedule() = default;

  // The pieces of a rank to, or from, the ranks of another host; none is empty, and those of one
  // peer follow each other.
  virtual std::vector<Piece> SendsTo(int rank, int host) const = 0;
  virtual std::vector<Piece> ReceivesFrom(int rank, int host) const = 0;
  // The piece of a rank's own input that goes to a rank of another host; it may be empty.
  virtual Piece OwnPiece(int from, int to) const = 0;

 protected:
  const HostMap& hosts_;
  const int64_t* counts_;
  int64_t item_;
};

// AllGatherV: also what the ranks of a host then share. A block crosses once per destination host,
// cut over the ranks there: piece i goes to the rank with local index i, from the rank with that
// index, modulo the number of ranks, on the owner's host. Only after the blocks of its own host are
// there can a rank send those that are not its own. `counts`: of each rank's block.
class GatherSchedule : public Schedule {
 public:
  using Schedule::Schedule;
  std::vector<Piece> SendsTo(int rank, int host) const override;
  std::vector<Piece> ReceivesFrom(int rank, int host) const override;
  Piece OwnPiece(int from, int to) const override { return Of(from, from, to); }

  // The first element of the piece of a block that rank `index` of a host has; index may be the
  // number of ranks there. Each rank shares its piece with its host.
  int64_t PieceBegin(int owner, int host, int index) const;
  int64_t PieceCount(int owner, int host, int index) const {
    return PieceBegin(owner, host, index + 1) - PieceBegin(owner, host, index);
  }

 private:
  Piece Of(int owner, int from, int to) const;
};

// ReduceScatterV in which every slice goes as it is: each rank of another host sends its slice to
// the owner. `counts`: of the slice for each rank.
class SliceSchedule : public Schedule {
 public:
  using Schedule::Schedule;
  std::vector<Piece> SendsTo(int rank, int host) const override;
  std::vector<Piece> ReceivesFrom(int rank, int host) const override;
  Piece OwnPiece(int from, int to) const override {
    const int64_t count = counts_[to];
    return {from, to, 0, to, 0, count, TravelWithHead(hosts_, from, to, count * item_)};
  }

  // Memory of a rank for the slices of the others: those of its host lie there whole, of each
  // other one a ring of chunks.
  int64_t ScratchBytes(int rank) const {
    const auto here = static_cast<int64_t>(hosts_.RanksOf(hosts_.HostOf(rank)).size());
    return HostBytes(rank) + (hosts_.ranks() - here) * RingBytes(rank);
  }
  int64_t HostBytes(int rank) const {
    const auto here = static_cast<int64_t>(hosts_.RanksOf(hosts_.HostOf(rank)).size());
    return here == 1 ? 0 : here * counts_[rank] * item_;
  }
  int64_t RingBytes(int rank) const {
    return std::min<int64_t>(counts_[rank] * item_, kStreamSlots * kStreamChunkBytes);
  }
};

// What a stage hands on.
enum class StageResult {
  kSlice,     // one rank's slice as it is
  kSums,      // a reduction that is not finished, in the accumulator's type
  kPartial,   // the reduction of a host's ranks, in the elements' type; only where order is free
  kFinished,  // the whole reduction, rounded
};

// What a stage takes in: a rank's slice, or the result of an earlier stage.
struct StageSource {
  bool is_slice = false;
  int index = 0;  // the rank, or the stage
};

// A part of one reduction, made by one rank for slices of its own host.
struct ReductionStage {
  int worker = 0;
  std::vector<StageSource> sources;  // in the order of the reduction
  StageResult result = StageResult::kSlice;
  int consumer = -1;  // the stage that takes the result; -1: this is the last one, of the owner
  int number = 0;     // tells apart the results that one rank sends to another
};

// How the slices of all ranks for one rank, the owner, are reduced. Stages only use stages before
// them.
struct ReductionPlan {
  std::vector<ReductionStage> stages;
  int64_t element_bytes = 0;  // that cross between hosts for each element
  bool whole = false;         // every slice of another host crosses as it is
};

// The elements of a reduction, as far as a plan depends on them.
struct ReductionElements {
  int64_t bytes = 0;       // of an element
  int64_t sum_bytes = 0;   // of its accumulator
  bool any_order = false;  // the result does not depend on the order

  bool operator==(const ReductionElements& other) const {
    return bytes == other.bytes && sum_bytes == other.sum_bytes && any_order == other.any_order;
  }
};

ReductionElements ElementsOf(DType dtype, ReduceOp op);

// The plan that moves the fewest bytes between hosts; of two equal ones that with fewer stages.
// With s = bytes of an element, a = of its accumulator, P ranks, H hosts, n of them on the owner's
// host, an element takes:
//   whole: s * (P - n): every rank of another host sends its slice;
//   chain: the ranks are walked in their order, and at each change of host the running sum crosses:
//     a, but s while it holds rank 0's slice alone; if the last rank is not on the owner's host the
//     rounded result crosses as well: s;
//   hosts first, if the order is free: s * (H - 1): every other host reduces its own slices.
// On each host the rank with the owner's local index, modulo the number of ranks there, does the
// work.
ReductionPlan PlanReduction(const HostMap& hosts, int owner, const ReductionElements& elements);

// The plans of a call with so many elements for each rank, by owner. Empty if every slice crosses
// as it is in the best ones, or if the slices are so small that one trip between the hosts matters
// more than bytes, or so large that a host cannot share them. The same on every rank.
std::vector<ReductionPlan> PlanReductions(const HostMap& hosts, const int64_t* counts,
                                          const ReductionElements& elements);

// The plans of the last call, for one with the same counts and elements. One thread.
class KnownPlans {
 public:
  using Plans = std::shared_ptr<const std::vector<ReductionPlan>>;
  // As PlanReductions(); `hosts`: always the same.
  Plans For(const HostMap& hosts, const int64_t* counts, const ReductionElements& elements);

 private:
  std::vector<int64_t> counts_;
  ReductionElements elements_;
  Plans plans_;
};

// Bytes of an element of a stage's result.
int64_t ItemBytes(StageResult result, const ReductionElements& elements);

// Whether a rank of its host, other than `rank` itself, reduces the slice of `rank`.
bool IsShared(const ReductionPlan& plan, int rank);

// The ring for the chunks of one result of so many elements; a short result fits as a whole.
int64_t RingBytes(int64_t count, const ReductionElements& elements);

// Scratch memory of a rank for the plans of a call: the sums of a chunk, then a ring for each
// result of another rank that it reduces, and for each of its own that crosses. `counts`: by owner.
int64_t ReductionScratchBytes(const std::vector<ReductionPlan>& plans, const int64_t* counts,
                              const ReductionElements& elements, int rank);

constexpr int kMostChainStages = 16;

}  // namespace collops::ucx

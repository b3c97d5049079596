#pragma once

#include <cstdint>
#include <vector>

#include "collops/comm/backends/ucx/host_map.h"
#include "collops/core/dtype.h"

namespace collops::ucx {

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

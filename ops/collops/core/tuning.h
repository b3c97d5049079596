#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"

namespace [[gnu::visibility("default")]] collops {

// The sizes, in bytes, at which the library switches algorithms. Results do not depend on them.
// A communicator keeps the table with which it was created; the ranks of a host must have the same
// one. COLLOPS_TUNING changes it.
struct Tuning {
  // The longest vectors that AllReduce adds up in one step, where every rank reads all vectors. Two
  // steps, a ReduceScatterV and an AllGatherV, copy fewer bytes, but wait for the peers twice.
  int64_t all_reduce_one_step_2 = 256 << 10;  // of 2 ranks
  int64_t all_reduce_one_step = 32 << 10;     // of more ranks
  // Outputs from this size on leave the caches before they are read again: kernels store them past
  // the caches where the machine can, which saves fetching each line before it is overwritten.
  // With 2 ranks and 32 MiB of L3 this costs 10-40 % up to 12 MiB, is about even at 16 MiB and
  // gains 10-15 % from 32 MiB on.
  int64_t streamed_output = 16 << 20;
};

// One row of the table.
struct TunedSize {
  const char* name;
  int64_t Tuning::* size;
  const char* meaning;
};

const std::vector<TunedSize>& TunedSizes();

// Changes the sizes that `text` names, such as "all_reduce_one_step=64k,streamed_output=32m".
// An error says what is wrong with one of them; `tuning` is then unchanged.
Status ParseTuning(const std::string& text, Tuning* tuning);

// The first size in which two tables differ; null: none.
const TunedSize* FirstDifference(const Tuning& a, const Tuning& b);

}  // namespace collops

#pragma once

#include <cstdint>

#include "core/status.h"

namespace collops::kernels {

// The threads that this process uses for one kernel, the caller's included: COLLOPS_NUM_THREADS, or
// else the cores of the process's affinity mask / the ranks of this host, at least 1; and 1 as long
// as nobody has said how many ranks there are.
int NumThreads();

// Says how many ranks share this host, of which the most ever said holds, and reads
// COLLOPS_NUM_THREADS anew. To be called when a communicator is made.
Status SetDefaultShare(int ranks);

// For tests: exactly this many from now on, until the next SetDefaultShare().
void ForceNumThreads(int num_threads);

// Bytes read and written from which on waking other threads pays: 4 MiB take one core some 35 us,
// of which a second one saves as much as waking it costs.
constexpr int64_t kLeastSharedBytes = 4 << 20;

// What a part of a kernel is: `context` is the caller's own, `part` counts from 0.
using PartFunction = void (*)(const void* context, int part);

// Calls run(context, part) for each part once, on any threads, in any order, and returns when all
// have returned. Parts must not touch each other's output. The other threads are made at first use,
// sleep between calls, belong to the process and end with it; a forked child makes its own. When
// they are at work for another caller, or this is one of them, all parts run on this thread.
void RunParts(int num_parts, PartFunction run, const void* context);

// The same for a callable: body(part).
template <typename Body>
void ParallelFor(int num_parts, const Body& body) {
  RunParts(
      num_parts, [](const void* context, int part) { (*static_cast<const Body*>(context))(part); },
      &body);
}

}  // namespace collops::kernels

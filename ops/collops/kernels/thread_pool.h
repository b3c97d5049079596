#pragma once

#include <cstdint>

#include "collops/core/status.h"

namespace collops::kernels {

// The threads that this process uses for one kernel, including the caller's: COLLOPS_NUM_THREADS,
// or the cores that the process may use / the ranks of this host, at least 1; and 1 until
// SetDefaultShare() has told the number of ranks.
int NumThreads();

// Tells how many ranks share this host (the largest number counts) and reads COLLOPS_NUM_THREADS
// anew. To be called when a communicator is made.
Status SetDefaultShare(int ranks);

// For tests: exactly this many threads, until the next SetDefaultShare().
void ForceNumThreads(int num_threads);

// Bytes read and written from which waking other threads pays: 4 MiB take one core about 35 us, of
// which a second core saves as much as waking it costs.
constexpr int64_t kLeastSharedBytes = 4 << 20;

// Runs part `part`, counted from 0; `context` is the caller's.
using PartFunction = void (*)(const void* context, int part);

// Calls run(context, part) once for each part, on any threads, in any order, and returns when all
// have returned. Parts must not write each other's output. The other threads are made at first use,
// sleep between calls that do not follow each other at once, and end with the process; a child of
// fork() makes its own. If they are busy with another caller, or the caller is one of them, all
// parts run on this thread.
void RunParts(int num_parts, PartFunction run, const void* context);

// RunParts() for a callable: body(part).
template <typename Body>
void ParallelFor(int num_parts, const Body& body) {
  RunParts(
      num_parts, [](const void* context, int part) { (*static_cast<const Body*>(context))(part); },
      &body);
}

}  // namespace collops::kernels

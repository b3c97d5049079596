#pragma once

#include <vector>

#include "core/status.h"

namespace collops::kernels {

// The instruction sets that there are kernels for, from the plainest on. All give the same bits,
// except in matrix products, which sum as each does best (gemm.h).
enum class Isa { kPortable, kAvx2, kAvx512 };

// "portable", "avx2", "avx512": the values of COLLOPS_ISA.
const char* Name(Isa isa);

// Whether this build has the kernels, and the CPU and the system on it can run them.
bool CanRun(Isa isa);

// Whether kernels of kAvx512 may use AVX512_BF16 as well.
bool HasAvx512BFloat16();

// All that can run here, from the plainest on.
std::vector<Isa> RunnableIsas();

// What COLLOPS_ISA says now holds for the kernels of this process; without it, the best that can
// run. Refuses a name that is none and a set that cannot run; then nothing changes. To be called
// when a communicator is made.
Status CheckIsa();

// What the kernels use: the last that CheckIsa() accepted, or the best before any call of it.
Isa ActiveIsa();

// For tests: `isa`, which can run, is used from now on, whatever COLLOPS_ISA says. All threads.
void ForceIsa(Isa isa);

// For tests: AVX512_BF16 is used, where there is such a thing, or not.
void AllowAvx512BFloat16(bool allowed);

}  // namespace collops::kernels

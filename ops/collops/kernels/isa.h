#pragma once

#include <vector>

#include "collops/core/status.h"

namespace collops::kernels {

// The instruction sets with kernels, the simplest first. All give the same bits, except in matrix
// products, which each sums in the order that is fastest (gemm.h). kNeon differs from kPortable in
// products only: in every other kernel the portable vectors of 16 bytes already are NEON's. kAmx is
// kAvx512 with AMX_BF16 for products of bfloat16.
enum class Isa { kPortable, kNeon, kAvx2, kAvx512, kAmx };

// "portable", "neon", "avx2", "avx512", "amx": the values of COLLOPS_ISA.
const char* Name(Isa isa);

// Whether this build has the kernels, and the CPU and the system on it can run them.
bool CanRun(Isa isa);

// Whether kernels of kAvx512 and of kAmx may use AVX512_BF16 as well.
bool HasAvx512BFloat16();

// Whether kernels of kNeon may use FEAT_BF16 as well: bfmmla, which multiplies matrices of
// bfloat16.
bool HasBfmmla();

// All instruction sets that can run here, the simplest first.
std::vector<Isa> RunnableIsas();

// Reads COLLOPS_ISA for the kernels of this process; if it is not set, the best set that can run is
// used. An error, and no change, for an unknown name or a set that cannot run. To be called when a
// communicator is made.
Status CheckIsa();

// What the kernels use: the set that CheckIsa() accepted last, or the best one before any call.
Isa ActiveIsa();

// For tests: all threads use `isa`, which must be able to run, whatever COLLOPS_ISA says.
void ForceIsa(Isa isa);

// For tests: whether AVX512_BF16 is used where the CPU has it.
void AllowAvx512BFloat16(bool allowed);

// For tests: whether bfmmla is used where the CPU has it.
void AllowBfmmla(bool allowed);

}  // namespace collops::kernels

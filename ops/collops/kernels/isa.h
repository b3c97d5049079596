#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collops/core/status.h"

namespace collops::kernels {

// The instruction sets with kernels, the simplest first. All give the same bits, except in matrix
// products of floating point, which each sums in the order that is fastest (gemm.h). kNeon differs
// from kPortable in products only: in every other kernel the portable vectors of 16 bytes already
// are NEON's. kAmx is kAvx512 with AMX for products of bfloat16 and int8.
enum class Isa { kPortable, kNeon, kAvx2, kAvx512, kAmx };

// "portable", "neon", "avx2", "avx512", "amx": the values of COLLOPS_ISA.
const char* Name(Isa isa);

// Whether this build has the kernels, and the CPU and the system on it can run them.
bool CanRun(Isa isa);

// What products use besides, where the CPU has it: of kAvx2, of kAvx512 and kAmx, of kAmx, and of
// kNeon (FEAT_BF16 and FEAT_I8MM, which multiply matrices of bfloat16 and of int8, FEAT_DotProd).
enum class Extension {
  kAvxVnni,
  kAvx512BFloat16,
  kAvx512Vnni,
  kAmxInt8,
  kBfmmla,
  kDotProduct,
  kSmmla
};
bool Has(Extension extension);

// All instruction sets that can run here, the simplest first.
std::vector<Isa> RunnableIsas();

// Reads COLLOPS_ISA for the kernels of this process; if it is not set, the best set that can run is
// used. An error, and no change, for an unknown name or a set that cannot run. To be called when a
// communicator is made.
Status CheckIsa();
// What is wrong with the value of COLLOPS_ISA; empty: nothing.
std::string IsaFault();

// What the kernels use: the set that CheckIsa() accepted last, or the best one before any call.
Isa ActiveIsa();

// For tests: all threads use `isa`, which must be able to run, whatever COLLOPS_ISA says.
void ForceIsa(Isa isa);

// For tests: whether extensions are used where the CPU has them.
void AllowExtensions(bool allowed);

// What an x86-64 CPU says of itself (CPUID), and which registers its system saves (XCR0).
struct X86Words {
  uint32_t leaf1_ecx;
  uint32_t leaf7_ebx;
  uint32_t leaf7_ecx;
  uint32_t leaf7_edx;
  uint32_t leaf7_1_eax;
  uint64_t xcr0;  // 0 if the system has not turned XSAVE on
};

// What kernels may use, as far as CPU and system go; Linux must also permit AMX, see isa.cpp.
struct X86Features {
  bool avx2;         // AVX2, FMA and F16C
  bool avx512;       // AVX512F, BW, DQ and VL
  bool amx;          // AMX_TILE, AMX_BF16 and AVX512_BF16
  bool avx_vnni;     // AVX2 and AVX-VNNI
  bool avx512_bf16;  // AVX-512 and AVX512_BF16
  bool avx512_vnni;  // AVX-512 and AVX512_VNNI
  bool amx_int8;     // AMX and AMX_INT8
};

// Without __builtin_cpu_supports(): the runtime library of some compilers does not ask the CPU.
inline X86Features FeaturesOf(const X86Words& words) {
  constexpr uint32_t kFma = 1u << 12;
  constexpr uint32_t kF16c = 1u << 29;
  constexpr uint32_t kAvx2 = 1u << 5;
  constexpr uint32_t kAvx512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;  // F, DQ, BW, VL
  constexpr uint32_t kAvxVnni = 1u << 4;
  constexpr uint32_t kAvx512BFloat16 = 1u << 5;
  constexpr uint32_t kAvx512Vnni = 1u << 11;
  constexpr uint32_t kAmx = 1u << 22 | 1u << 24;  // BF16, TILE
  constexpr uint32_t kAmxInt8 = 1u << 25;
  constexpr uint64_t kYmmState = 1u << 1 | 1u << 2;
  constexpr uint64_t kZmmState = kYmmState | 1u << 5 | 1u << 6 | 1u << 7;
  constexpr uint64_t kTileState = 1u << 17 | 1u << 18;
  const auto has = [](auto word, auto bits) { return (word & bits) == bits; };

  X86Features features = {};
  features.avx2 = has(words.xcr0, kYmmState) && has(words.leaf1_ecx, kFma | kF16c) &&
                  has(words.leaf7_ebx, kAvx2);
  features.avx512 = has(words.xcr0, kZmmState) && has(words.leaf7_ebx, kAvx512);
  features.avx_vnni = features.avx2 && has(words.leaf7_1_eax, kAvxVnni);
  features.avx512_bf16 = features.avx512 && has(words.leaf7_1_eax, kAvx512BFloat16);
  features.avx512_vnni = features.avx512 && has(words.leaf7_ecx, kAvx512Vnni);
  features.amx = features.avx512_bf16 && has(words.xcr0, kTileState) && has(words.leaf7_edx, kAmx);
  features.amx_int8 = features.amx && has(words.leaf7_edx, kAmxInt8);
  return features;
}

}  // namespace collops::kernels

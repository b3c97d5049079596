#pragma once

#include <cstdint>

namespace collops::kernels {

// RunArithmetic() of each instruction set. The AVX ones and Amx exist on x86-64 only, Neon and
// Bfmmla on arm64, and run where isa.h says so; PairsAvx512 uses AVX512_BF16, which multiplies
// pairs of bfloat16.
int64_t PortableArithmetic(int64_t rounds);
int64_t NeonArithmetic(int64_t rounds);
int64_t BfmmlaArithmetic(int64_t rounds);
int64_t Avx2Arithmetic(int64_t rounds);
int64_t Avx512Arithmetic(int64_t rounds);
int64_t PairsAvx512Arithmetic(int64_t rounds);
int64_t AmxArithmetic(int64_t rounds);

}  // namespace collops::kernels

#pragma once

#include <cstdint>

namespace collops::kernels {

// RunArithmetic() of one instruction set. Those of x86-64 exist there alone, and run where isa.h
// says so; PairsAvx512 is the instruction of AVX512_BF16, which multiplies pairs of bfloat16.
int64_t PortableArithmetic(int64_t rounds);
int64_t Avx2Arithmetic(int64_t rounds);
int64_t Avx512Arithmetic(int64_t rounds);
int64_t PairsAvx512Arithmetic(int64_t rounds);

}  // namespace collops::kernels

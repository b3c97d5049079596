#pragma once

#include <cstdint>

namespace collops::kernels {

// Copies bytes that do not overlap. Counted, see CopiedBytes().
void Copy(void* destination, const void* source, int64_t bytes);

// Sets bytes to zero. Not counted.
void Zero(void* destination, int64_t bytes);

// Bytes that Copy() has moved on this thread since it started; tests hold the operators to it.
uint64_t CopiedBytes();

}  // namespace collops::kernels

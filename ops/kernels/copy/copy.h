#pragma once

#include <cstdint>

namespace collops::kernels {

// Copies bytes that do not overlap. Counted, see CopiedBytes(). `whole_bytes` is the size of the
// vector that these bytes are a part of, when it is larger: a large one (streaming.h) is stored
// past the caches. All bytes are there for other threads and processes once it returns.
void Copy(void* destination, const void* source, int64_t bytes, int64_t whole_bytes = 0);

// Sets bytes to zero. Not counted.
void Zero(void* destination, int64_t bytes);

// Bytes that Copy() was asked to move by this thread since it started; tests hold the operators to
// it.
uint64_t CopiedBytes();

}  // namespace collops::kernels

#pragma once

#include <cstdint>

namespace collops::kernels {

// Copies bytes that do not overlap; CopiedBytes() counts them. `whole_bytes`: the size of the
// vector of which these bytes are a part, if larger: a large vector (see
// StreamedOutputBytes()) is stored past the caches. All bytes are visible to other threads and
// processes on return.
void Copy(void* destination, const void* source, int64_t bytes, int64_t whole_bytes = 0);

// As Copy(), past the caches whatever the size, where the machine can.
void CopyPastCaches(void* destination, const void* source, int64_t bytes);

// Sets bytes to zero. Not counted.
void Zero(void* destination, int64_t bytes);

// Bytes that this thread has copied with Copy() since it started; tests check the operators' count.
uint64_t CopiedBytes();

// Vectors of at least this size are stored past the caches where the machine can: `streamed_output`
// of the table (core/tuning.h), which this process reads once.
int64_t StreamedOutputBytes();

constexpr int64_t kLineBytes = 64;

}  // namespace collops::kernels

#pragma once

#include <cstdint>

namespace collops::kernels {

// Vectors of at least this size are stored past the caches where the machine can: `streamed_output`
// of the table (core/tuning.h), which this process reads once.
int64_t StreamedOutputBytes();

constexpr int64_t kLineBytes = 64;

}  // namespace collops::kernels

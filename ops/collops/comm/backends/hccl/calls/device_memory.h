#pragma once

#include <cstddef>
#include <cstdint>

#include "collops/comm/backends/hccl/library/api.h"
#include "collops/comm/call.h"
#include "collops/core/status.h"

namespace collops::hccl {

// The address of an element of device memory.
void* ElementAt(void* data, int64_t element, DType dtype);

// Sets the elements [range.begin, range.end) of device memory to zero, on the stream.
Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream);

// Copies device memory on the stream; nothing if it is the same memory or there are no bytes.
Status Copy(const Api& api, void* to, const void* from, int64_t bytes, Stream stream);

}  // namespace collops::hccl

#pragma once

#include "comm/backends/hccl/api.h"
#include "comm/call.h"
#include "core/status.h"

namespace collops::hccl {

// Sets the elements [range.begin, range.end) of device memory to zero, on the stream.
Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream);

}  // namespace collops::hccl

#include "comm/backends/hccl/zero.h"

#include "comm/backends/hccl/error.h"

namespace collops::hccl {

Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream) {
  const auto bytes = static_cast<size_t>((range.end - range.begin) * SizeOf(dtype));
  if (bytes == 0) return Ok();
  std::byte* const begin = static_cast<std::byte*>(data) + range.begin * SizeOf(dtype);
  return ToStatus(api, api.memset_async(begin, bytes, 0, bytes, stream), "aclrtMemsetAsync");
}

}  // namespace collops::hccl

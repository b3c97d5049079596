#include "collops/comm/backends/hccl/calls/device_memory.h"

#include "collops/comm/backends/hccl/library/error.h"

namespace collops::hccl {

void* ElementAt(void* data, int64_t element, DType dtype) {
  return static_cast<std::byte*>(data) + element * SizeOf(dtype);
}

Status Zero(const Api& api, void* data, const Range& range, DType dtype, Stream stream) {
  const auto bytes = static_cast<size_t>((range.end - range.begin) * SizeOf(dtype));
  if (bytes == 0) return Ok();
  return ToStatus(api,
                  api.memset_async(ElementAt(data, range.begin, dtype), bytes, 0, bytes, stream),
                  "aclrtMemsetAsync");
}

Status Copy(const Api& api, void* to, const void* from, int64_t bytes, Stream stream) {
  if (bytes == 0 || to == from) return Ok();
  const auto size = static_cast<size_t>(bytes);
  return ToStatus(api, api.memcpy_async(to, size, from, size, CopyKind::kDeviceToDevice, stream),
                  "aclrtMemcpyAsync");
}

}  // namespace collops::hccl
